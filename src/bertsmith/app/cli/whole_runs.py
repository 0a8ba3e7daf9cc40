"""The commands of whole runs: fine-tune, adapt, distill, audit, upgrade, drift, compare."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.app.cli.options import JsonOption, print_json, print_table, require_inputs, say, show
from bertsmith.base.core.requests import call
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import Rank

if TYPE_CHECKING:
    from bertsmith.app.library.request import DriftRequest, UpgradeRequest
    from bertsmith.recipes.adaptation.settings import AdaptRequest
    from bertsmith.recipes.audit.request import AuditRequest
    from bertsmith.recipes.comparison.request import CompareRequest
    from bertsmith.recipes.distillation.request import DistillCorpusRequest, DistillRequest
    from bertsmith.recipes.finetuning.request import FinetuneRequest

OF_A_RUN = ("out", "general", "task", "train", "dev", "seeds", "resume")  # options that --check has no use for


def finetune(request: "FinetuneRequest") -> None:
    """Fine-tune a model on a task, with one output layer or your own head on top.

    The defaults depend on the training set; see --recipe. RUN/report.html and .json have the scores of every seed
    with their mean and spread. Ctrl-C writes a checkpoint and exits with code 130; --resume continues from there. Under
    torchrun, each process trains whole seeds or trials of --search; with fewer seeds, all share every step. Tables have
    the columns text and label, and for pairs of texts also pair; source and target for summaries, translations, trees
    and text-to-text; context and response for replies; those of GAP for coreference.
    """
    from bertsmith.app.library.finetuning import finetune as run_finetuning
    from bertsmith.recipes.finetuning.run import summary_lines
    from bertsmith.recipes.results.finished_run import TABLE_FILE, table_cells
    from bertsmith.recipes.results.report import write_finetuning_report

    result, out = call(run_finetuning, request), Path(request.out)
    if Rank.from_environment().index:
        return  # process 0 prints and writes for all
    if result.trials:
        best = result.trials[0]
        say(
            f"search: learning rate {best['learning_rate']:g}, batch {best['batch_size']}, epochs {best['epochs']:g}; "
            f"all trials: {out / TABLE_FILE}"
        )
        print_table(*table_cells(result.trials))
    say(*summary_lines(result.report, str(out)))
    say(f"model: {out / 'model'}")
    say(f"report: {write_finetuning_report([out])}")


def adapt(
    request: "AdaptRequest",
    check: Annotated[
        bool, typer.Option("--check", help="only report whether there is enough text and how long it takes")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Adapt a model to the text of a domain: continue pre-training with its own, a grafted or a new vocabulary.

    First it reports whether the text is long enough, whether the vocabulary fits it, how long a pass takes, and what
    it chooses if you leave --vocabulary out: a model that has read little is replaced by a new one. The final report
    compares the pieces per word, the masked-LM loss on held-out domain text and on general text, and with --task the
    score, before and after. Losses are per word, so they can be compared between vocabularies. Ctrl-C writes a
    checkpoint and exits with code 130; --resume continues from there.
    """
    from bertsmith.recipes.adaptation.run import adapt as run_adaptation
    from bertsmith.recipes.adaptation.run import forecast_adaptation

    if check:
        idle = [f"--{name}" for name in OF_A_RUN if name in request.given]
        require(
            not idle,
            expected="--check without options of a run",
            found=", ".join(idle),
            fix="leave them out; nothing is written or trained",
        )
        forecast = call(forecast_adaptation, request)
        show(forecast, json)
        return
    result = call(run_adaptation, request)
    if Rank.from_environment().index:
        return  # process 0 prints for all
    if json:
        print_json(result.report)
        return
    print_table(*result.table())
    say(*result.lines())
    say(f"model: {result.model}")
    say(f"report: {result.page}")


def distill(request: "DistillRequest", json: JsonOption = False) -> None:
    """Train a smaller model that learns from a fine-tuned one, and show what both cost and score.

    The student is fine-tuned, with the teacher's logits as soft targets next to the labels. They are computed once and
    kept in RUN/teacher. Texts without labels help: the teacher answers them. The table has parameters, bytes, processor
    milliseconds in fp32 and int8, and scores; RUN/distillation.json has the same. Ctrl-C writes a checkpoint and exits
    with code 130; --resume continues from there.
    """
    from bertsmith.app.library.distillation import distill as run_distillation

    report, out = call(run_distillation, request), Path(request.out)
    if Rank.from_environment().index:
        return  # process 0 prints for all
    if json:
        print_json(report.to_dict())
        return
    print_table(*report.table())
    say(*report.lines())
    if (out / "model").is_dir():  # a bag of n-grams is not a model folder
        say(f"model: {out / 'model'}")
        say(f"report: {out / 'report.html'}")


def distill_corpus(request: "DistillCorpusRequest") -> None:
    """Teach a student on plain text, as DistilBERT and TinyBERT do; give one of --steps, --tokens and --minutes.

    The student of --method distilbert has half of the teacher's layers and is written as a DistilBERT. That of --method
    vectors learns to give the vectors of any encoder, whatever its vocabulary: --student mini makes a new model, and a
    folder continues one. Fine-tune the student, or name it as --student of `bertsmith distill`. Ctrl-C writes a
    checkpoint and exits with code 130; --resume continues from there.
    """
    from bertsmith.app.library.distillation import distill_corpus as run_on_corpus
    from bertsmith.training.pretraining.report import summary_lines

    result, out = call(run_on_corpus, request), Path(request.out)
    if Rank.from_environment().index:
        return
    say(*summary_lines(result))
    say(f"model: {out / 'model'}")
    say(f"report: {out / 'report.html'}")


def audit(request: "AuditRequest", json: JsonOption = False) -> None:
    """Find the labels of a table that are probably wrong, duplicates that disagree and labels that overlap.

    Every row is predicted by models that were not fitted to it: a bag of words and, with --model, a linear model on its
    vectors. DIR/issues.csv has the rows to look at, DIR/corrected.csv the table with the suggested labels. --next
    chooses the unlabelled rows that are worth a label most. With --task ner, entities are judged, and the corrected
    file, of the most certain suggestions alone, has the form of TABLE. --fix makes only the corrections that are left
    in an issues.csv.
    """
    from bertsmith.recipes.audit.run import audit_labels

    result = call(audit_labels, request)
    if json:
        print_json(dict(result.report))
        return
    say(*result.lines())
    if request.fix is None:
        if "corrected" not in result.report and (result.folder / "corrected.csv").is_file():
            say(f"the table with the suggested labels: {result.folder / 'corrected.csv'}")
        rows = result.folder / "issues.csv" if result.issues else "none"
        say(f"rows to look at: {rows}", f"report: {result.folder / 'report.html'}")


def upgrade(request: "UpgradeRequest", json: JsonOption = False) -> None:
    """Show what changes when a model is replaced by another one: answers, scores, search results, time and size.

    With labels, both are scored and compared by a paired test. Models without a task, such as sentence encoders, are
    compared by the passages that are nearest to each text. `serve --replace` runs the same check.
    """
    from bertsmith.app.library.upgrade import upgrade as compare_models

    result = call(compare_models, request)
    if json:
        print_json({**result.report, "changes": list(result.changes)})
    else:
        say(*result.lines())
        if request.out is not None:
            say(f"report: {Path(request.out) / 'report.html'}")
    if not result.passes:
        raise typer.Exit(1)


def drift(request: "DriftRequest", json: JsonOption = False) -> None:
    """Show how later texts, such as requests, differ from the texts that a model was trained on.

    The mean of their words, compared with that of random divisions of all texts, says whether they differ by more than
    noise, and which later texts are least like the training texts. With --model: unknown pieces, truncated texts,
    predicted labels, confidence; of a model without a task, the mean of the vectors.
    """
    from bertsmith.app.library.drift import drift as compare_texts

    result = call(compare_texts, request)
    if json:
        print_json({**result.report, "unlike": list(result.unlike)})
        return
    say(*result.lines())
    if request.out is not None:
        say(f"report: {Path(request.out) / 'report.html'}")


def compare(request: "CompareRequest") -> None:
    """Train every system from counting words to BERT on one task, and say which steps were worth it.

    Systems that read text get the same text and the same time; what they learn from it is kept in REPORT/models. Every
    system then gets the same labels and is scored on the same dev examples. A system that fails is listed with its
    reason. --resume continues a comparison that was stopped.
    """
    require_inputs((), [path for path in (request.named_task()[1], *request.corpus) if path is not None])

    from bertsmith.recipes.comparison.run import compare_systems

    result = call(compare_systems, request)
    first, *others = result.lines()
    say(first)
    print_table(*result.table())
    say(*others)
    say(f"report: {result.page}")
