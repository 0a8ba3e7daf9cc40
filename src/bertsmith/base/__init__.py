"""What any program needs: errors, settings, files, the machine, processes, pages. Nothing here knows of text."""
