"""Commands that read a whole document: ask it questions, and rank its sentences by a label."""

from typing import TYPE_CHECKING

from bertsmith.app.cli.options import JsonOption, note, note_cut, print_json, print_table, say
from bertsmith.base.core.requests import call

if TYPE_CHECKING:
    from bertsmith.inference.search.request import AskRequest, RankRequest


def ask(request: "AskRequest", json: JsonOption = False) -> None:
    """Answer questions from a document of any length, and say where in it each answer is.

    MODEL was fine-tuned on questions (--task squad or squad2). Long documents are read in overlapping windows. Lines
    and characters are counted from 1, and no two answers overlap. A model for SQuAD 2.0 may find no answer, which is
    printed; --json still lists the withheld ones. With --writer, the answers in words come first, each with its score
    and the passage that it was written from.
    """
    from bertsmith.app.library.documents import ask_document

    answered = call(ask_document, request)
    for question in answered:
        if json:
            print_json(question.to_dict())
        else:
            if len(answered) > 1:
                say(question.question)
            say(*question.lines())
        if question.cut_tokens:
            note(f"tokens truncated from {question.question[:40]!r}: {question.cut_tokens}")
    cut = [answer.cut_tokens for question in answered for answer in question.written or () if answer.cut_tokens]
    note_cut(len(cut), sum(cut), "passage")


def rank(request: "RankRequest", json: JsonOption = False) -> None:
    """Print the sentences of a document by the probability of a label, highest first.

    With a model fine-tuned on --task claim, `--label Claim` lists what is worth checking in an article. The probability
    says how claim-like a sentence is, never whether it is true. Columns: probability, number of the sentence, sentence.
    """
    from bertsmith.app.library.documents import rank_sentences

    ranked, top = call(rank_sentences, request.replaced(top=None)), request.top
    if json:
        for sentence in ranked[:top]:
            print_json(sentence.to_dict())
    else:
        rows = [(f"{sentence.probability:.4f}", sentence.sentence, sentence.text) for sentence in ranked[:top]]
        print_table(("probability", "number", "sentence"), rows)
    cut = [sentence.cut_tokens for sentence in ranked if sentence.cut_tokens]
    note_cut(len(cut), sum(cut), "sentence")
