"""One small sample of each kind of task: a spec and examples that two layers of width 32 can learn."""

import dataclasses
from collections.abc import Sequence

from bertsmith.base.core.randomness import generator
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.datasets.examples import (
    NEITHER,
    Answer,
    ChoiceExample,
    EntityExample,
    Example,
    ListExample,
    MentionExample,
    QuestionExample,
    SequenceExample,
    TaggedExample,
    TextExample,
    TripletExample,
    document_of,
)
from bertsmith.tasks.specs.settings import HIERARCHICAL
from bertsmith.tasks.specs.task import TaskSettings, TaskSpec
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from model.examples import small_config

GOOD, BAD, PLAIN = "good fine great".split(), "bad poor awful".split(), "the a film was it and plot of in one".split()
PEOPLE, PLACES = "anna bert carl".split(), "rome oslo lima".split()
WORDS = [*GOOD, *BAD, *PLAIN, *PEOPLE, *PLACES, "who", "where", "?", ".", "##s"]
TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *WORDS]))
CONFIG = small_config(
    vocab_size=len(TOKENIZER.vocabulary), intermediate_size=64, max_position_embeddings=64, initializer_range=0.1
)
SETTINGS = TaskSettings(max_length=32, stride=8)


def read_in_parts(max_length: int, stride: int, long_text: str = "windows") -> TaskSettings:
    """The settings of a task that reads texts longer than a row in several rows."""
    return TaskSettings(max_length=max_length, stride=stride, long_text=long_text)


SENTIMENT = TaskSpec(kind="classification", name="sentiment", labels=("negative", "positive"), settings=SETTINGS)
PARAPHRASE = TaskSpec(kind="classification", name="paraphrase", labels=("no", "yes"), pair=True, settings=SETTINGS)
NUMBER = TaskSpec(
    kind="regression", name="regression", metric="pearson", metrics=("pearson", "spearman"), settings=SETTINGS
)
CHOICE = TaskSpec(kind="choice", name="choice", settings=SETTINGS)

SPECS = {
    "single": SENTIMENT,
    "pair": dataclasses.replace(PARAPHRASE, name="mrpc", labels=("0", "1"), metric="f1", metrics=("f1", "accuracy")),
    "several labels": TaskSpec(
        kind="classification",
        name="multi-label",
        labels=("person", "place"),
        multi_label=True,
        metric="micro_f1",
        metrics=("micro_f1", "macro_f1", "subset_accuracy"),
        settings=SETTINGS,
    ),
    "windows": dataclasses.replace(SENTIMENT, settings=read_in_parts(8, 4)),
    "windows of a pair": dataclasses.replace(PARAPHRASE, labels=("0", "1"), settings=read_in_parts(9, 3)),
    "on the mean": dataclasses.replace(SENTIMENT, reads="mean"),
    "windows on the mean": dataclasses.replace(SENTIMENT, reads="mean", settings=read_in_parts(8, 4)),
    "hierarchical": dataclasses.replace(SENTIMENT, reads="mean", settings=read_in_parts(8, 4, "hierarchical")),
    "hierarchical pair": dataclasses.replace(PARAPHRASE, reads="cls", settings=read_in_parts(5, 2, "hierarchical")),
    "hierarchical by a BiLSTM": dataclasses.replace(NUMBER, settings=read_in_parts(6, 3, "hierarchical-bilstm")),
    "on three vectors": dataclasses.replace(SENTIMENT, reads="concat"),
    "on the first token": dataclasses.replace(NUMBER, reads="cls"),
    "on the pair": dataclasses.replace(PARAPHRASE, reads="pair"),
    "on texts apart": dataclasses.replace(PARAPHRASE, reads="apart"),
    "choice on texts apart": dataclasses.replace(CHOICE, reads="apart"),
    "choice on the pair": dataclasses.replace(CHOICE, reads="pair"),
    "choice on the mean": dataclasses.replace(CHOICE, reads="mean"),
    "number": NUMBER,
    "scored vectors": TaskSpec(
        kind="similarity",
        name="similarity",
        pair=True,
        metric="spearman",
        metrics=("spearman", "pearson"),
        reads="mean",
        objective="cosine",
        settings=SETTINGS,
    ),
    "vectors of partners": TaskSpec(
        kind="similarity",
        name="pairs",
        pair=True,
        metric="mrr@10",
        metrics=("recall@1", "mrr@10"),
        reads="mean",
        objective="ranking",
        settings=dataclasses.replace(SETTINGS, query_prompt="who ? "),
    ),
    "vectors of triplets": TaskSpec(
        kind="similarity",
        name="triplets",
        pair=True,
        metric="triplet_accuracy",
        metrics=("triplet_accuracy",),
        reads="mean",
        objective="ranking",
        settings=SETTINGS,
    ),
    "choice": CHOICE,
    "replies by vectors": TaskSpec(
        kind="selection",
        name="response-selection",
        metric="recall@1",
        metrics=("recall@1", "recall@2", "recall@5", "mrr"),
        reads="mean",
        objective="ranking",
        settings=dataclasses.replace(SETTINGS, long_text="tail"),
    ),
    "replies by pairs": TaskSpec(
        kind="choice",
        name="response-selection",
        metric="recall@1",
        metrics=("recall@1", "recall@2", "recall@5", "mrr"),
        settings=dataclasses.replace(SETTINGS, long_text="tail", scorer="cross-encoder"),
    ),
    "tags": TaskSpec(
        kind="tagging",
        name="ner",
        labels=("O", "B-PER", "B-LOC"),
        scheme="IOB2",
        metric="f1",
        metrics=("precision", "recall", "f1", "accuracy"),
        settings=SETTINGS,
    ),
    "nested": TaskSpec(
        kind="entities",
        name="nested-ner",
        labels=("GROUP", "LOC", "PER"),
        metric="f1",
        metrics=("precision", "recall", "f1"),
        settings=dataclasses.replace(SETTINGS, entity_words=2, overlap="nested"),
    ),
    "by name": TaskSpec(
        kind="entities-by-name",
        name="entities-by-name",
        labels=("one", "where", "who"),
        metric="f1",
        metrics=("precision", "recall", "f1"),
        settings=dataclasses.replace(SETTINGS, entity_words=2, overlap="nested"),
    ),
    "answer": TaskSpec(
        kind="span", name="squad", metric="f1", metrics=("exact", "f1"), settings=TaskSettings(max_length=32, stride=8)
    ),
    "answer or none": TaskSpec(
        kind="span",
        name="squad2",
        unanswerable=True,
        metric="f1",
        metrics=("exact", "f1"),
        settings=TaskSettings(max_length=16, stride=4),
    ),
}
SPECS["lists"] = TaskSpec(
    kind="reranking",
    name="reranking",
    pair=True,
    metric="ndcg@10",
    metrics=("ndcg@10", "mrr@10", "map@100"),
    activation="sigmoid",
    objective="lambda",
    settings=SETTINGS,
)
SPECS["text to write"] = TaskSpec(
    kind="generation",
    name="text-to-text",
    metric="rougeL",
    metrics=("rouge1", "rouge2", "rougeL", "exact"),
    settings=dataclasses.replace(SETTINGS, max_target_length=8, beam=2, answers=2),
)
SPECS["sentences"] = TaskSpec(
    kind="extraction",
    name="extractive-summarization",
    metric="rougeL",
    metrics=("rouge1", "rouge2", "rougeL"),
    settings=dataclasses.replace(SETTINGS, max_length=16, sentences=1, sentence_layers=0),
)
SPECS["sentences of a text"] = dataclasses.replace(
    SPECS["sentences"], settings=dataclasses.replace(SPECS["sentences"].settings, max_length=14, sentence_layers=1)
)
SPECS["pronoun"] = TaskSpec(
    kind="coreference",
    name="coreference",
    metric="f1",
    metrics=("f1", "precision", "recall", "accuracy"),
    settings=SETTINGS,
)
# The kinds whose models have an ONNX form; that of some takes sentences, or gives the numbers of mentions.
OF_PARTS = ["sentences", "sentences of a text", "pronoun", "nested", "by name"]
OF_VECTORS = [name for name, spec in SPECS.items() if spec.kind in ("similarity", "selection")]  # exported as encoders
WITH_GRAPH = [
    name
    for name, spec in SPECS.items()
    if spec.settings.long_text not in HIERARCHICAL and name not in (*OF_VECTORS, *OF_PARTS, "text to write")
]


def examples_of(kind: str, count: int, seed: int = 0) -> list[Example]:
    """Examples with gold, a function of (kind, count, seed)."""
    draw = generator(seed, f"samples {kind}")

    def some(words: Sequence[str], number: int = 1) -> str:
        return " ".join(draw.choice(words, number).tolist())

    result: list[Example] = []
    for number in range(count):
        even, line = number % 2 == 0, f"line {number + 1} of 'samples'"
        name = str(number)
        if kind in ("single", "windows", "on the mean", "windows on the mean", "hierarchical", "on three vectors"):
            long = kind.startswith(("windows", "hierarchical"))
            text = f"{some(PLAIN, 12 if long else 5)} {some(GOOD if even else BAD)} {some(PLAIN, 3)}"
            label = "positive" if even else "negative"
            result.append(TextExample(id=name, first=text, label=label, location=line))
        elif kind in ("pair", "windows of a pair"):
            first = some(PLAIN, 6 if kind.startswith("windows") else 3)
            second = f"{some(GOOD if even else BAD)} {some(PLAIN, 2)}"
            result.append(TextExample(id=name, first=first, second=second, label=str(int(even)), location=line))
        elif kind in ("on the pair", "on texts apart", "hierarchical pair"):
            word = some([*GOOD, *BAD])
            others = BAD if word in GOOD else GOOD
            first, second = f"{some(PLAIN, 3)} {word}", f"{word if even else some(others)} {some(PLAIN, 2)}"
            result.append(
                TextExample(id=name, first=first, second=second, label="yes" if even else "no", location=line)
            )
        elif kind == "scored vectors":
            shared = int(draw.integers(3))
            kept, left = (GOOD, BAD) if even else (BAD, GOOD)
            first = [some(kept), some(kept), some(PLAIN)]
            second = [some(kept if shared > 0 else left), some(kept if shared > 1 else left), some(PLAIN)]
            pair = {"first": " ".join(first), "second": " ".join(second)}
            result.append(TextExample(id=name, **pair, label=float(shared), location=line))
        elif kind in ("vectors of partners", "vectors of triplets"):
            person, location = PEOPLE[number % 3], PLACES[number // 3 % 3]
            texts = (f"{person} {location} {some(PLAIN)}", f"{some(PLAIN)} {location} {person} {some(PLAIN)}")
            if kind == "vectors of partners":
                result.append(TextExample(id=name, first=texts[0], second=texts[1], location=line))
            else:
                other = f"{PEOPLE[(number + 1) % 3]} {location} {some(BAD)}"
                result.append(TripletExample(id=name, texts=(*texts, other), location=line))
        elif kind == "several labels":
            labels = tuple(label for label, bit in (("person", number & 1), ("place", number & 2)) if bit)
            parts = [some(PLAIN, 3)]
            parts += [some(PEOPLE)] if "person" in labels else []
            parts += [some(PLACES)] if "place" in labels else []
            result.append(TextExample(id=name, first=" ".join(parts), label=labels, location=line))
        elif kind in ("number", "on the first token", "hierarchical by a BiLSTM"):
            good = int(draw.integers(4))
            text = f"{some(PLAIN, 2)} {some(GOOD, good) if good else ''} {some(PLAIN, 4 - good)}"
            result.append(TextExample(id=name, first=text, label=float(good), location=line))
        elif kind in ("choice", "choice on the mean", "choice on the pair", "choice on texts apart"):
            right = int(draw.integers(3))
            endings = tuple(f"{some(PLAIN, 2)} {some(GOOD if ending == right else BAD)}" for ending in range(3))
            result.append(ChoiceExample(id=name, context=some(PLAIN, 3), endings=endings, label=right, location=line))
        elif kind in ("replies by vectors", "replies by pairs"):
            right, names = int(draw.integers(3)), [number + step for step in range(3)]
            good = kind == "replies by pairs"  # which two layers learn in a few steps, unlike what two texts share
            endings = tuple(
                f"{some(GOOD if at == right else BAD) if good else some(PLAIN)} {PEOPLE[names[at - right] % 3]}"
                for at in range(3)
            )
            context = f"{some(PLAIN, 2)} {PEOPLE[number % 3]} {some(PLAIN)}"
            result.append(ChoiceExample(id=name, context=context, endings=endings, label=right, location=line))
        elif kind == "lists":
            best = int(draw.integers(3))
            endings = tuple(f"{some(GOOD if at == best else BAD)} {some(PLAIN)} {PEOPLE[at]}" for at in range(3))
            scores = tuple(float(at == best) for at in range(3))
            context = f"who {some(PLAIN, 2)}"
            result.append(ListExample(id=name, context=context, endings=endings, scores=scores, location=line))
        elif kind == "text to write":
            words = draw.choice([*PEOPLE, *PLACES], int(draw.integers(1, 4))).tolist()
            target = " ".join(words[::-1])
            result.append(SequenceExample(id=name, source=" ".join(words), targets=(target,), location=line))
        elif kind.startswith("sentences"):
            sentences = [
                f"{some(PLAIN, int(draw.integers(2, 5)))} {some(BAD)} ." for _ in range(int(draw.integers(2, 5)))
            ]
            place_of_best = int(draw.integers(len(sentences)))
            sentences[place_of_best] = f"{some(PEOPLE)} {some(GOOD)} {some(PLACES)} ."
            fields = {"targets": (sentences[place_of_best],), "location": line}
            result.append(document_of(sentences, id=name, **fields))
        elif kind == "pronoun":
            # The pronoun is the person who is good; if both are bad, it is neither.
            right = int(draw.integers(3))
            people = draw.choice(PEOPLE, 2, replace=False).tolist()
            parts = [f"{person} {some(GOOD if n == right else BAD)}" for n, person in enumerate(people)]
            text = f"{parts[0]} {some(PLAIN)} {parts[1]} {some(PLAIN, 2)} who {some(PLAIN)}"
            spans = [(text.index(words), text.index(words) + len(words)) for words in ("who", *people)]
            fields = {"pronoun": spans[0], "candidates": tuple(spans[1:]), "label": right if right < 2 else NEITHER}
            result.append(MentionExample(id=name, text=text, location=line, **fields))
        elif kind in ("nested", "by name"):
            words, entities = [], []
            group, location, person = SPECS[kind].labels
            for _ in range(int(draw.integers(2, 5))):
                pick, start = int(draw.integers(4)), len(words)
                words += [some((PEOPLE, PLACES, PEOPLE, PLAIN)[pick])]
                if pick < 3:
                    entities.append((start, start + 1, (person, location, person)[pick]))
                if pick == 2:  # a person and a place are a group
                    words += [some(PLACES)]
                    entities += [(start + 1, start + 2, location), (start, start + 2, group)]
            sentence = TaggedExample(id=name, words=tuple(words), location=line)
            result.append(EntityExample.of(sentence, entities))
        elif kind == "tags":
            words, tags = [], []
            for _ in range(int(draw.integers(3, 9))):
                pick = int(draw.integers(4))
                words.append(some((PEOPLE, PLACES, PLAIN, PLAIN)[pick]))
                tags.append(("B-PER", "B-LOC", "O", "O")[pick])
            result.append(TaggedExample(id=name, words=tuple(words), tags=tuple(tags), location=line))
        else:
            person, location = some(PEOPLE), some(PLACES)
            context = f"{some(PLAIN, 4)} {person} {some(PLAIN, 2)} {location} {some(PLAIN, 3)} ."
            question, text = ("who ?", person) if even else ("where ?", location)
            impossible = kind == "answer or none" and number % 3 == 0
            if impossible:
                context = f"{some(PLAIN, 9)} ."
            answers = () if impossible else (Answer(text, context.index(text)),)
            result.append(
                QuestionExample(
                    id=name,
                    question=question,
                    context=context,
                    answers=answers,
                    is_impossible=impossible,
                    location=line,
                )
            )
    return result


def write_base_model(path: object, seed: int = 0, *, scale: float = 1.0, more: Sequence[str] = ()) -> str:
    """An untrained model folder to start from; `scale` multiplies the norm of its last layer, `more` are pieces."""
    tokenizer = WordPieceTokenizer(Vocabulary([*TOKENIZER.vocabulary.pieces, *more])) if more else TOKENIZER
    model = untrained(dataclasses.replace(CONFIG, vocab_size=len(tokenizer.vocabulary)), seed)
    model.encoder.get_parameter("layers.1.output_norm.weight").data.mul_(scale)
    save_pretrained(str(path), model, tokenizer, ModelMetadata.from_dict({"task": "pretraining"}))
    return str(path)
