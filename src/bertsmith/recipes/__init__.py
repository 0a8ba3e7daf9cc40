"""Whole runs that combine the districts below: fine-tuning, distillation, adaptation, comparison, translation."""
