"""Commands for word vectors without context: train, convert, and ask. They are typed `bertsmith vectors train` ..."""

from pathlib import Path
from typing import TYPE_CHECKING

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
    from bertsmith.inference.word_vectors.request import (
        AnalogyRequest,
        ConvertVectorsRequest,
        NeighboursRequest,
        OppositesRequest,
        ShowRequest,
        SimilarityRequest,
    )
    from bertsmith.inference.word_vectors.settings import TrainVectorsRequest

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

    vectors = train_word_vectors(settings=request.part(WordVectorSettings), **request.arguments(train_word_vectors))
    for line in vectors.about["notes"]:
        note(line)
    say(f"{request.out}: {counted(len(vectors.words), 'word')}, vectors of {counted(vectors.width, 'number')}")


def convert(request: "ConvertVectorsRequest") -> None:
    """Write word vectors to a file that other tools read, with exactly the same numbers."""
    from bertsmith.inference.word_vectors.formats import load_word_vectors, write_word_vectors

    out, to = Path(request.out), request.to
    if to not in EXPORTED:
        raise Refused(f"expected text or binary for --to; found {to!r}", "use one of the two")
    require_output(out, EXPORTED[to], inputs=[request.vectors], replace=request.replace)
    vectors = load_word_vectors(request.vectors)
    write_word_vectors(vectors, out, to)
    say(f"{out}: {counted(len(vectors.words), 'word')}, vectors of {counted(vectors.width, 'number')}")


def neighbours(request: "NeighboursRequest", json: JsonOption = False) -> None:
    """Print the words nearest to each word, with their cosines.

    Opposites are used alike, so that they are often neighbours: hot and cold.
    """
    from bertsmith.inference.word_vectors.answers import neighbors
    from bertsmith.inference.word_vectors.formats import load_word_vectors

    vectors = load_word_vectors(request.vectors, lowercase=request.lowercase)
    vectors.rows(request.words)
    for word in request.words:
        near = neighbors(vectors, word, request.count)
        if json:
            print_json({"word": word, "neighbours": [neighbor._asdict() for neighbor in near]})
            continue
        if len(request.words) > 1:
            say(word)
        print_table(("cosine", "word"), [(f"{neighbor.cosine:.4f}", neighbor.word) for neighbor in near])


def analogy(request: "AnalogyRequest", json: JsonOption = False) -> None:
    """Answer "A is to B as C is to what?", or score a file of such questions.

    The answer is the word whose cosine with B - A + C is highest, other than these three. A file has four words per
    line, the right answer last; a line ": name" starts a section. Questions with unknown words are counted.
    """
    from bertsmith.inference.word_vectors import answers
    from bertsmith.inference.word_vectors.formats import load_word_vectors

    if len(request.words) not in (1, 3):
        raise Refused(
            f"expected three words, or one file of questions; found {counted(len(request.words), 'argument')}"
        )
    vectors = load_word_vectors(request.vectors, lowercase=request.lowercase)
    if len(request.words) == 3:
        a, b, c = request.words
        best = answers.analogy(vectors, a, b, c, count=request.count, most_frequent=request.most_frequent)
        if json:
            print_json([answer._asdict() for answer in best])
        else:
            print_table(("cosine", "word"), [(f"{answer.cosine:.4f}", answer.word) for answer in best])
        return
    scores = answers.score_analogies(vectors, request.words[0], most_frequent=request.most_frequent)
    if json:
        for score in scores:
            names = ("accuracy", "correct", "asked", "left_out")
            print_json({"section": score.name, **{name: getattr(score, name) for name in names}})
        return
    print_table(
        ("section", "accuracy", "correct", "asked", "left out"),
        [(score.name, score.accuracy, score.correct, score.asked, score.left_out) for score in scores],
    )


def similarity(request: "SimilarityRequest", json: JsonOption = False) -> None:
    """Print the cosine of two words, or the rank correlation with a file of judged pairs.

    The cosine says how alike two words are used; it is high for opposites too. Pairs with unknown words are counted.
    """
    from bertsmith.inference.word_vectors import answers
    from bertsmith.inference.word_vectors.formats import load_word_vectors

    if len(request.words) not in (1, 2):
        raise Refused(f"expected two words, or one file of pairs; found {counted(len(request.words), 'argument')}")
    vectors = load_word_vectors(request.vectors, lowercase=request.lowercase)
    if len(request.words) == 2:
        cosine = answers.similarity(vectors, *request.words)
        if json:
            print_json({"cosine": cosine})
        else:
            say(f"{cosine:.4f}")
        return
    score = answers.score_similarities(vectors, request.words[0])
    if json:
        print_json({"spearman": score.spearman, "pairs": score.pairs, "left_out": score.left_out})
    else:
        left = counted(score.left_out, "pair")
        say(f"Spearman {score.spearman:.4f} over {counted(score.pairs, 'pair')}; left out, with unknown words: {left}")


def opposites(request: "OppositesRequest", json: JsonOption = False) -> None:
    """Measure whether vectors tell similar words from opposites, or judge two words.

    Opposites are used alike, so that the cosine often cannot tell. A probe, a linear model on both vectors, learns from
    the pairs; it is tested on words that it has not seen. Both are the probability that a similar and an opposite pair
    are put in the right order; 0.5 is chance.
    """
    from bertsmith.inference.word_vectors.formats import load_word_vectors
    from bertsmith.inference.word_vectors.opposites import relation, score_opposites

    if request.words and len(request.words) != 2:
        raise Refused(f"expected two words, or none; found {counted(len(request.words), 'argument')}")
    vectors = load_word_vectors(request.vectors, lowercase=request.lowercase)
    if request.words:
        judged = relation(vectors, request.pairs, *request.words)
        if json:
            print_json({"cosine": judged.cosine, "opposite": judged.opposite})
        else:
            say(f"cosine {judged.cosine:.4f}; probability of opposites, by the probe: {judged.opposite:.2f}")
        return
    score = score_opposites(vectors, request.pairs)
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


def show(request: "ShowRequest", json: JsonOption = False) -> None:
    """Print the vector of a word, rounded to two decimals; --json prints it exactly.

    It is the same in every context.
    """
    from bertsmith.inference.word_vectors.formats import load_word_vectors

    vector = load_word_vectors(request.vectors, lowercase=request.lowercase).vector(request.word)
    if json:
        print_json({"word": request.word, "vector": [float(number) for number in vector]})
    else:
        say(" ".join(f"{number:.2f}" for number in vector))
