"""The template of a row, as data: the special tokens around one text or two, and the segment of each part.

BERT has `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`, with B and the last [SEP] in segment 1. RoBERTa has
`<s> A </s>` and `<s> A </s></s> B </s>`, all in segment 0.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Template:
    """The special tokens of a row.

    Attributes:
        second_segment: the segment id of the second text and of the tokens after it; the rest is in segment 0.
    """

    start: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...]
    second_segment: int = 1

    @staticmethod
    def bert(cls_id: int, sep_id: int) -> "Template":
        """BERT's template: [CLS] A [SEP] B [SEP].

        >>> Template.bert(2, 3)
        Template(start=(2,), between=(3,), end=(3,), second_segment=1)
        """
        return Template(start=(cls_id,), between=(sep_id,), end=(sep_id,))

    @property
    def has_segments(self) -> bool:
        """Whether the two texts of a row are in different segments.

        >>> Template.bert(2, 3).has_segments
        True
        """
        return self.second_segment != 0

    def num_special(self, texts: int) -> int:
        """The number of special tokens in a row of one text or two.

        >>> Template(start=(0,), between=(2, 2), end=(2,), second_segment=0).num_special(2)
        4
        """
        return len(self.start) + len(self.end) + (len(self.between) if texts == 2 else 0)

    def second_text(self, first_tokens: int) -> int:
        """The position in a row where the second text starts, after a first text of that many tokens.

        >>> Template.bert(2, 3).second_text(5)
        7
        """
        return len(self.start) + first_tokens + len(self.between)
