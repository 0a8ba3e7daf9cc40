"""Reads and writes the folder of a memory network: words as a vocabulary, the answers as labels."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import require
from bertsmith.models.checkpoints.own_folder import read_own_folder, write_own_folder
from bertsmith.models.encoders.memory_network import MemoryNetwork, MemoryNetworkConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.memory.stories import Story
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.word_counts import count_words

TASK = "memory"


def words_of(stories: Iterable[Story], minimum_count: int) -> WordPieceTokenizer:
    """The tokenizer whose pieces are the words of stories, the most frequent ones first; others are unknown."""
    rules = TextRules()
    texts = dict.fromkeys(text for story in stories for text in (*story.facts, story.question, story.answer or ""))
    counts = count_words(texts, rules)
    often = sorted((-count, word) for word, count in counts.items() if count >= minimum_count)
    return WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *(word for _, word in often)]), rules)


def rows_of_answers(answers: Sequence[str], tokenizer: Tokenizer) -> list[int]:
    """The row of each answer in the word tables: that of its word, or one of its own behind all words."""
    vocabulary = tokenizer.vocabulary
    rows, phrases = list[int](), len(vocabulary)
    for answer in answers:
        ids = tokenizer.encode(answer).tolist()
        if len(ids) == 1 and ids[0] != vocabulary.unk_id and ids[0] not in rows:
            rows.append(ids[0])
        else:
            rows.append(phrases)
            phrases += 1
    return rows


def write_memory_model(
    path: Path, model: MemoryNetwork, tokenizer: Tokenizer, metadata: ModelMetadata, dev_questions: int
) -> None:
    """Writes a model, its words, its metadata with the answers, and a card, in place of one that is there."""
    config = model.config
    scores = "".join(f"- {name}: {value:.4f}\n" for name, value in metadata.scores.items())
    card = (
        "---\nlibrary_name: bertsmith\npipeline_tag: question-answering\n---\n\n"
        "# A memory network that answers questions about a list of facts\n\n"
        f"- {config.num_hidden_layers} hops, width {config.hidden_size}; {config.num_parameters():,} parameters.\n"
        f"- {len(tokenizer.vocabulary):,} words; {len(metadata.labels):,} answers, those of its training.\n"
        f"- The last {config.max_position_embeddings} facts of a story are read.\n"
        f"- The parameters after {counted(metadata.steps or 0, 'step')}, those with the best held-out loss.\n"
        f"\n## Scores on {dev_questions:,} held-out questions\n\n{scores}"
        '\n## Use\n\n`bertsmith memory answer --model DIR FACTS "QUESTION"`; FACTS is a file with one fact per line.\n'
    )
    write_own_folder(path, config, model.state_dict(), tokenizer, metadata, card, replace=True)


def read_memory_model(path: Path | str) -> tuple[MemoryNetwork, Tokenizer, ModelMetadata]:
    """The model of a folder, or of the run that has it, its words, and its metadata with the answers."""

    def new_model(config: MemoryNetworkConfig, metadata: ModelMetadata, tokenizer: Tokenizer) -> MemoryNetwork:
        rows = rows_of_answers(metadata.labels, tokenizer)
        phrases = sum(row >= len(tokenizer.vocabulary) for row in rows)
        require(
            phrases == config.phrases,
            expected=f"labels in '{path}' of which {config.phrases} are not a word of the vocabulary",
            found=f"{phrases} of them",
            fix="restore the labels of the training in bertsmith.json",
        )
        return MemoryNetwork(config, rows, seed=None)

    configs = {MemoryNetworkConfig.model_type: MemoryNetworkConfig}
    return read_own_folder(path, "a memory network", configs, "memory train", new_model)
