"""The list of commands: their functions, names and examples."""

import inspect
from collections.abc import Callable
from typing import NamedTuple

from bertsmith.app.cli import (
    codes,
    corpus,
    documents,
    indexes,
    inference,
    memory,
    models,
    prediction,
    pretraining,
    search,
    sizes,
    text,
    translation,
    vectors,
    video,
    whole_runs,
    word_vectors,
)
from bertsmith.app.cli.request_options import REQUESTS, settings


class Command(NamedTuple):
    """A command, with the example shown in its help and in docs/commands.md.

    Attributes:
        not_run: why the check of the docs skips the example; empty if the example is run.
        misplaced: what to do with an extra argument, such as a file given to a command that reads stdin.
        trains: it may run as several processes of `torchrun`.
    """

    function: Callable[..., None]
    name: str
    example: str
    not_run: str = ""
    misplaced: str = ""
    trains: bool = False

    @property
    def resumes(self) -> bool:
        """Whether the command has the option --resume."""
        parameters = inspect.signature(self.function).parameters
        return "resume" in parameters or (self.name in REQUESTS and hasattr(REQUESTS[self.name], "resume"))


COMMANDS = (
    Command(pretraining.demo, "demo", "bertsmith demo --minutes 1 --text my-text --out my-demo"),
    Command(text.vocab, "vocab", "bertsmith vocab my-text --size 8000 --out vocab.txt"),
    Command(
        text.tokenize,
        "tokenize",
        "echo 'Who was Jim Henson?' | bertsmith tokenize --vocab vocab.txt",
        misplaced="pass the lines on stdin: bertsmith tokenize --vocab vocab.txt < FILE",
    ),
    Command(text.inputs, "inputs", "bertsmith inputs --vocab vocab.txt 'Who was Jim Henson?' 'He was a puppeteer.'"),
    Command(corpus.corpus, "corpus", "bertsmith corpus my-text --vocab vocab.txt --out my-corpus"),
    Command(corpus.check, "check", "bertsmith check my-corpus"),
    Command(pretraining.rates, "rates", "bertsmith rates my-corpus --rows 2000"),
    Command(
        pretraining.pretrain,
        "pretrain",
        "bertsmith pretrain my-corpus --size tiny --steps 12 --out my-run",
        trains=True,
    ),
    Command(pretraining.plan, "plan", "bertsmith plan my-corpus --size tiny --passes 40"),
    Command(settings, "settings", "bertsmith settings finetune"),
    Command(pretraining.report, "report", "bertsmith report my-run"),
    Command(
        inference.fill,
        "fill",
        "bertsmith fill --model my-run/model 'The man went to the [MASK] .'",
        misplaced="quote the text",
    ),
    Command(
        inference.next_sentence,
        "next",
        "bertsmith next --model my-pairs-run/model 'The man went to the store.' 'He bought milk.'",
    ),
    Command(
        inference.complete,
        "complete",
        "bertsmith complete --model my-gpt/model 'The man went to' --tokens 5",
        not_run="it needs a language model; the page on language models runs it",
        misplaced="quote the text",
    ),
    Command(
        inference.perplexity,
        "perplexity",
        "bertsmith perplexity my-text/village.txt --model my-gpt/model",
        not_run="it needs a language model; the page on language models runs it",
    ),
    Command(
        translation.train_translation,
        "train-translation",
        "bertsmith train-translation my-numbers.tsv --pieces 60 --steps 12 --out my-translation",
        not_run="it needs pairs of texts; the page on language models runs it",
    ),
    Command(
        translation.translate,
        "translate",
        "echo '4 2' | bertsmith translate --model my-translation/model",
        not_run="it needs a translation model; the page on language models runs it",
        misplaced="pass the lines on stdin: bertsmith translate --model DIR < FILE",
    ),
    Command(
        memory.train,
        "memory train",
        "bertsmith memory train my-stories.txt --epochs 2 --out my-memory",
        not_run="it needs stories; the page on attention before the Transformer runs it",
    ),
    Command(
        memory.answer,
        "memory answer",
        "bertsmith memory answer --model my-memory my-facts.txt 'Where is Mary?'",
        not_run="it needs a memory network; the page on attention before the Transformer runs it",
        misplaced="quote the question",
    ),
    Command(
        codes.build,
        "codes build",
        "bertsmith codes build my-events.csv --out my-codes",
        not_run="it needs a table of events; the page on sequences of codes runs it",
    ),
    Command(
        codes.train,
        "codes train",
        "bertsmith codes train my-codes --given diagnosis --wanted medication --out my-codes-run",
        not_run="it needs a folder of codes; the page on sequences of codes runs it",
    ),
    Command(
        codes.predict,
        "codes predict",
        "bertsmith codes predict my-events.csv --model my-codes-run --top 3",
        not_run="it needs a model of visits; the page on sequences of codes runs it",
    ),
    Command(
        codes.anomalies,
        "codes anomalies",
        "bertsmith codes anomalies my-events.csv --model my-codes-run --top 3",
        not_run="it needs a model of visits; the page on sequences of codes runs it",
    ),
    Command(
        codes.embed,
        "codes embed",
        "bertsmith codes embed my-events.csv --model my-codes-run --out my-subjects",
        not_run="it needs a model of visits; the page on sequences of codes runs it",
    ),
    Command(
        video.cluster,
        "codes cluster",
        "bertsmith codes cluster my-features --depth 2 --branching 4 --out my-words.safetensors",
        not_run="it needs arrays of features; the page on feature words runs it",
    ),
    Command(
        video.assign,
        "codes assign",
        "bertsmith codes assign my-features --words my-words.safetensors --out my-events.csv",
        not_run="it needs arrays of features; the page on feature words runs it",
    ),
    Command(
        video.train,
        "codes train-video",
        "bertsmith codes train-video my-captions.tsv --events my-events.csv --words my-words.safetensors "
        "--out my-video",
        not_run="it needs segments with codes; the page on feature words runs it",
    ),
    Command(
        video.fill,
        "codes fill",
        "bertsmith codes fill 'now let me show you how to [MASK] the [MASK]' --model my-video --codes '0.1 0.3'",
        not_run="it needs a model of texts with codes; the page on feature words runs it",
        misplaced="quote the text, and the codes",
    ),
    Command(
        video.match,
        "codes match",
        "bertsmith codes match my-captions.tsv --events my-events.csv --model my-video --text 'cut the onion'",
        not_run="it needs a model of texts with codes; the page on feature words runs it",
    ),
    Command(
        video.following,
        "codes next",
        "bertsmith codes next '0.1 0.3' --model my-video",
        not_run="it needs a model of texts with codes; the page on feature words runs it",
        misplaced="quote the codes",
    ),
    Command(
        video.features,
        "codes features",
        "bertsmith codes features my-captions.tsv --events my-events.csv --model my-video --out my-features.npy",
        not_run="it needs a model of texts with codes; the page on feature words runs it",
    ),
    Command(
        whole_runs.finetune,
        "finetune",
        "bertsmith finetune --model my-run/model --task spam --seeds 1 --out my-spam-run",
        misplaced="pass the files with --train and --dev",
        trains=True,
    ),
    Command(
        whole_runs.adapt,
        "adapt",
        "bertsmith adapt my-run/model my-text --steps 12 --out my-adapted-run",
        trains=True,
    ),
    Command(
        prediction.evaluate,
        "evaluate",
        "bertsmith evaluate --model my-spam-run/model --data my-mails.csv",
        misplaced="pass the file with --data",
    ),
    Command(
        prediction.quantize,
        "quantize",
        "bertsmith quantize --model my-spam-run/model --data my-mails.csv",
        misplaced="pass the file with --data",
    ),
    Command(
        prediction.classify,
        "classify",
        "bertsmith classify my-mails.csv --labels billing,hardware,travel",
    ),
    Command(
        prediction.predict,
        "predict",
        "echo 'Buy these pills' | bertsmith predict --model my-spam-run/model",
        misplaced="pass the lines on stdin: bertsmith predict --model DIR < FILE, or a table with --data FILE",
    ),
    Command(
        documents.ask,
        "ask",
        "bertsmith ask my-answer-run/model my-text/village.txt 'What was mended?' --top 3",
        not_run="it needs a model fine-tuned on questions; the page on fine-tuning runs it",
    ),
    Command(
        documents.rank,
        "rank",
        "bertsmith rank my-spam-run/model my-text/village.txt --label Spam --top 3",
        misplaced="give one file, or a folder of files",
    ),
    Command(
        whole_runs.distill,
        "distill",
        "bertsmith distill --teacher my-spam-run/model --train my-mails.csv --seeds 1 --out my-student",
        misplaced="pass the files with --train, --dev and --unlabelled",
        trains=True,
    ),
    Command(
        whole_runs.distill_corpus,
        "distill corpus",
        "bertsmith distill corpus my-corpus --teacher my-run/model --layers 1 --steps 5 --out my-small-run",
        trains=True,
    ),
    Command(prediction.glue, "glue", "bertsmith glue my-cola.json my-mrpc.json"),
    Command(whole_runs.audit, "audit", "bertsmith audit my-mails.csv --model my-run/model --folds 3 --out my-audit"),
    Command(
        whole_runs.upgrade,
        "upgrade",
        "bertsmith upgrade my-spam-run/model my-student/model --on my-mails.csv --out my-upgrade",
    ),
    Command(
        whole_runs.drift,
        "drift",
        "bertsmith drift my-mails.csv my-text/village.txt --model my-spam-run/model --out my-drift",
    ),
    Command(
        whole_runs.compare,
        "compare",
        "bertsmith compare --task spam --corpus my-text --systems one-hot,tf-idf,ppmi --seeds 1 --out my-comparison",
        misplaced="pass the labelled file with --task, and text with --corpus",
    ),
    Command(
        vectors.embed,
        "embed",
        "bertsmith embed my-text/village.txt --model my-run/model --out my-vectors.npy",
    ),
    Command(
        vectors.features,
        "features",
        "bertsmith features my-text/village.txt --model my-run/model --layers sum-all --out my-words.parquet",
    ),
    Command(
        indexes.index,
        "index",
        "bertsmith index my-text/village.txt --model my-run/model --out my-index",
        misplaced="pass the model with --model, and the folder of the index with --out",
    ),
    Command(indexes.remove, "index remove", "bertsmith index remove my-index --id village.txt:1"),
    Command(indexes.compact, "index compact", "bertsmith index compact my-index"),
    Command(indexes.join, "index join", "bertsmith index join my-index my-other-index --out my-joined-index"),
    Command(indexes.export, "index export", "bertsmith index export my-index --out my-index.parquet"),
    Command(
        search.search,
        "search",
        "bertsmith search my-text/village.txt --model my-run/model --query 'the broken gate' --top 3",
        misplaced="pass the query with --query, and the passages as the only argument",
    ),
    Command(
        search.senses,
        "senses",
        "bertsmith senses letter my-text --model my-run/model --out my-senses.html",
    ),
    Command(
        search.contexts,
        "contexts",
        "bertsmith contexts letter 'A sailor wanted the long letter.' 'The letter was an A.' --model my-run/model "
        "--text my-text",
        misplaced="quote each sentence",
    ),
    Command(
        search.disambiguate,
        "disambiguate",
        "bertsmith disambiguate my-letters.csv --examples my-letters.csv --glosses my-glosses.csv --model my-run/model",
    ),
    Command(
        search.gloss_pairs,
        "gloss-pairs",
        "bertsmith gloss-pairs my-letters.csv --glosses my-glosses.csv --out my-gloss-pairs.csv",
    ),
    Command(vectors.vectors, "vectors", "bertsmith vectors my-vectors.npy --center --out my-centered-vectors.npy"),
    Command(
        vectors.static,
        "vectors static",
        "bertsmith vectors static --model my-run/model --out my-static-model",
    ),
    Command(
        word_vectors.train,
        "vectors train",
        "bertsmith vectors train my-text --width 20 --minimum-count 2 --out my-word-vectors",
    ),
    Command(
        word_vectors.convert,
        "vectors convert",
        "bertsmith vectors convert my-word-vectors --to binary --out my-word-vectors.bin",
    ),
    Command(
        word_vectors.neighbours,
        "vectors neighbours",
        "bertsmith vectors neighbours my-word-vectors gardener sailor --count 3",
    ),
    Command(
        word_vectors.analogy,
        "vectors analogy",
        "bertsmith vectors analogy my-word-vectors gardener gate sailor",
    ),
    Command(
        word_vectors.similarity,
        "vectors similarity",
        "bertsmith vectors similarity my-word-vectors gardener sailor",
    ),
    Command(
        word_vectors.opposites,
        "vectors opposites",
        "bertsmith vectors opposites my-word-vectors my-opposites.txt",
        not_run="it needs a list of pairs; the page on word vectors writes one",
    ),
    Command(word_vectors.show, "vectors show", "bertsmith vectors show my-word-vectors gardener"),
    Command(
        models.serve,
        "serve",
        "bertsmith serve --model my-run/model --model my-spam-run/model",
        not_run="it runs until it is stopped",
        misplaced="pass each model with --model",
    ),
    Command(
        models.convert,
        "convert",
        "bertsmith convert my-run/model my-google-checkpoint --to google",
    ),
    Command(models.inspect, "inspect", "bertsmith inspect my-google-checkpoint --names"),
    Command(
        models.push,
        "push",
        "bertsmith push my-run/model my-name/my-model",
        not_run="it needs an account on the hub",
    ),
    Command(models.models, "models", "bertsmith models"),
    Command(models.doctor, "doctor", "bertsmith doctor"),
    Command(sizes.sizes, "sizes", "bertsmith sizes"),
)
