"""Commands for word vectors without context: train, convert, and ask. They are typed `bertsmith vectors train` ..."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.app.cli.options import (
    JsonOption,
    note,
    print_json,
    print_table,
    say,
)
from bertsmith.app.cli.usage import Refused
from bertsmith.base.core.progress import counted
from bertsmith.base.storage.outputs import FileKind, require_output

if TYPE_CHECKING:
    from bertsmith.inference.word_vectors.settings import TrainVectorsRequest

VectorsArgument = Annotated[
    Path, typer.Argument(metavar="V", help="folder of word vectors, or a file of Word2Vec or GloVe (also .gz)")
]
LowercaseOption = Annotated[
    bool, typer.Option("--lowercase", help="look words up in lower case; a folder knows that itself")
]
MostFrequentOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="only the N most frequent words may answer; 0: all")
]
EXPORTED = {
    to: FileKind("word vectors", starts=tuple(b"%d" % digit for digit in range(1, 10))) for to in ("text", "binary")
}


def train(request: "TrainVectorsRequest") -> None:
    """Train vectors of words without context: Word2Vec, GloVe, or PPMI with an SVD.

    Words are basic tokens; a window does not reach into the next sentence, which is a line in files with a sentence per
    line. Defaults are those of the original programs. A stopped run resumes after its last complete epoch, and gives
    the same bytes.
    """
    from bertsmith.inference.word_vectors.settings import WordVectorSettings
    from bertsmith.inference.word_vectors.training import train_word_vectors

    vectors = train_word_vectors(
        request.texts,
        request.out,
        request.part(WordVectorSettings),
        form=request.form,
        column=request.column,
        encoding=request.encoding,
        bad_bytes=request.bad_bytes,
        resume=request.resume,
        replace=request.replace,
    )
    for line in vectors.about["notes"]:
        note(line)
    say(f"{request.out}: {counted(len(vectors.words), 'word')}, vectors of {counted(vectors.width, 'number')}")


def convert(
    vectors: VectorsArgument,
    to: Annotated[str, typer.Option(help="text or binary, the formats of Word2Vec")],
    out: Annotated[Path, typer.Option(metavar="F", help="output file")],
    replace: Annotated[bool, typer.Option("--replace", help="overwrite F")] = False,
) -> None:
    """Write word vectors to a file that other tools read, with exactly the same numbers."""
    from bertsmith.inference.word_vectors.formats import load_word_vectors, write_word_vectors

    if to not in EXPORTED:
        raise Refused(f"expected text or binary for --to; found {to!r}", "use one of the two")
    require_output(out, EXPORTED[to], inputs=[vectors], replace=replace)
    found = load_word_vectors(vectors)
    write_word_vectors(found, out, to)
    say(f"{out}: {counted(len(found.words), 'word')}, vectors of {counted(found.width, 'number')}")


def neighbours(
    vectors: VectorsArgument,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="one or more words")],
    count: Annotated[int, typer.Option(min=1, help="number of neighbours")] = 10,
    lowercase: LowercaseOption = False,
    json: JsonOption = False,
) -> None:
    """Print the words nearest to each word, with their cosines.

    Opposites are used alike, so that they are often neighbours: hot and cold.
    """
    from bertsmith.inference.word_vectors.answers import neighbors
    from bertsmith.inference.word_vectors.formats import load_word_vectors

    found = load_word_vectors(vectors, lowercase=lowercase)
    found.rows(words)
    for word in words:
        near = neighbors(found, word, count)
        if json:
            print_json({"word": word, "neighbours": [one._asdict() for one in near]})
            continue
        if len(words) > 1:
            say(word)
        print_table(("cosine", "word"), [(f"{one.cosine:.4f}", one.word) for one in near])


def analogy(
    vectors: VectorsArgument,
    words: Annotated[
        list[str], typer.Argument(metavar="A B C | FILE", help="three words; or a file with four words per line")
    ],
    count: Annotated[int, typer.Option(min=1, help="number of answers to A B C")] = 1,
    most_frequent: MostFrequentOption = 30_000,
    lowercase: LowercaseOption = False,
    json: JsonOption = False,
) -> None:
    """Answer "A is to B as C is to what?", or score a file of such questions.

    The answer is the word whose cosine with B - A + C is highest, other than these three. A file has four words per
    line, the right answer last; a line ": name" starts a section. Questions with unknown words are counted.
    """
    from bertsmith.inference.word_vectors import answers
    from bertsmith.inference.word_vectors.formats import load_word_vectors

    if len(words) not in (1, 3):
        raise Refused(f"expected three words, or one file of questions; found {counted(len(words), 'argument')}")
    found = load_word_vectors(vectors, lowercase=lowercase)
    if len(words) == 3:
        a, b, c = words
        best = answers.analogy(found, a, b, c, count=count, most_frequent=most_frequent)
        if json:
            print_json([one._asdict() for one in best])
        else:
            print_table(("cosine", "word"), [(f"{one.cosine:.4f}", one.word) for one in best])
        return
    scores = answers.score_analogies(found, words[0], most_frequent=most_frequent)
    if json:
        for one in scores:
            print_json({"section": one.name, "accuracy": one.accuracy, "correct": one.correct, "asked": one.asked,
                        "left_out": one.left_out})  # fmt: skip
        return
    print_table(
        ("section", "accuracy", "correct", "asked", "left out"),
        [(one.name, one.accuracy, one.correct, one.asked, one.left_out) for one in scores],
    )


def similarity(
    vectors: VectorsArgument,
    words: Annotated[
        list[str], typer.Argument(metavar="A B | FILE", help="two words; or a file with two words and a score per line")
    ],
    lowercase: LowercaseOption = False,
    json: JsonOption = False,
) -> None:
    """Print the cosine of two words, or the rank correlation with a file of judged pairs.

    The cosine says how alike two words are used; it is high for opposites too. Pairs with unknown words are counted.
    """
    from bertsmith.inference.word_vectors import answers
    from bertsmith.inference.word_vectors.formats import load_word_vectors

    if len(words) not in (1, 2):
        raise Refused(f"expected two words, or one file of pairs; found {counted(len(words), 'argument')}")
    found = load_word_vectors(vectors, lowercase=lowercase)
    if len(words) == 2:
        cosine = answers.similarity(found, *words)
        if json:
            print_json({"cosine": cosine})
        else:
            say(f"{cosine:.4f}")
        return
    score = answers.score_similarities(found, words[0])
    if json:
        print_json({"spearman": score.spearman, "pairs": score.pairs, "left_out": score.left_out})
    else:
        left = counted(score.left_out, "pair")
        say(f"Spearman {score.spearman:.4f} over {counted(score.pairs, 'pair')}; left out, with unknown words: {left}")


def opposites(
    vectors: VectorsArgument,
    pairs: Annotated[Path, typer.Argument(metavar="PAIRS", help="two words and `similar` or `opposite` per line")],
    words: Annotated[list[str] | None, typer.Argument(metavar="A B", help="two words to judge")] = None,
    lowercase: LowercaseOption = False,
    json: JsonOption = False,
) -> None:
    """Measure whether vectors tell similar words from opposites, or judge two words.

    Opposites are used alike, so that the cosine often cannot tell. A probe, a linear model on both vectors, learns from
    the pairs; it is tested on words that it has not seen. Both are the probability that a similar and an opposite pair
    are put in the right order; 0.5 is chance.
    """
    from bertsmith.inference.word_vectors.formats import load_word_vectors
    from bertsmith.inference.word_vectors.opposites import relation, score_opposites

    if words and len(words) != 2:
        raise Refused(f"expected two words, or none; found {counted(len(words), 'argument')}")
    found = load_word_vectors(vectors, lowercase=lowercase)
    if words:
        judged = relation(found, pairs, *words)
        if json:
            print_json({"cosine": judged.cosine, "opposite": judged.opposite})
        else:
            say(f"cosine {judged.cosine:.4f}; probability of opposites, by the probe: {judged.opposite:.2f}")
        return
    score = score_opposites(found, pairs)
    if json:
        print_json(score.to_dict())
        return
    print_table(
        ("pairs", "number", "mean cosine"),
        [("similar", score.similar, score.cosine_of_similar), ("opposite", score.opposite, score.cosine_of_opposite)],
    )
    probe = "not measured, the pairs share too many words" if score.by_probe is None else f"{score.by_probe:.3f}"
    say(
        f"told apart by the cosine: {score.by_cosine:.3f}; by the probe: {probe}; "
        f"left out, with unknown words: {counted(score.left_out, 'pair')}"
    )


def show(
    vectors: VectorsArgument,
    word: Annotated[str, typer.Argument(metavar="WORD")],
    lowercase: LowercaseOption = False,
    json: JsonOption = False,
) -> None:
    """Print the vector of a word, rounded to two decimals; --json prints it exactly.

    It is the same in every context.
    """
    from bertsmith.inference.word_vectors.formats import load_word_vectors

    vector = load_word_vectors(vectors, lowercase=lowercase).vector(word)
    if json:
        print_json({"word": word, "vector": [float(number) for number in vector]})
    else:
        say(" ".join(f"{number:.2f}" for number in vector))
