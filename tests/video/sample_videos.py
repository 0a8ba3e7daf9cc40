"""Generated videos: each segment has an action and an object; its features show both, its narration names both."""

from pathlib import Path

import numpy as np

from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from written_files import file_with

VERBS, NOUNS = "cut wash fry".split(), "onion apple pan".split()
WIDTH, SECONDS = 8, 1.5
WORDS = [*VERBS, *NOUNS, *"now let me show you how to the we a .".split()]


def write_base_model(path: Path) -> Path:
    """An untrained BERT with two layers of width 32, which knows the words of the narrations."""
    tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *WORDS]))
    config = BertConfig(
        vocab_size=len(tokenizer.vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64, initializer_range=0.1, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    metadata = ModelMetadata.from_dict({"task": "pretraining"})
    save_pretrained(path, untrained(config, 1), tokenizer, metadata, trained=("mlm",))
    return path


def write_videos(folder: Path, *, videos: int = 12, segments: int = 5, seed: int = 0) -> tuple[Path, Path]:
    """A folder with an array of each video, and a table of its narrations with their times."""
    source = np.random.default_rng(seed)
    world = np.random.default_rng(99)
    actions, objects = world.standard_normal((3, WIDTH)), world.standard_normal((3, WIDTH))
    features = folder / "features"
    features.mkdir(parents=True)
    lines = ["subject\tstart\tstop\ttext"]
    for video in range(videos):
        rows: list[np.ndarray] = []
        for _ in range(segments):
            action, noun = source.integers(3, size=2).tolist()
            clips = int(source.integers(3, 6))
            start = len(rows) * SECONDS
            rows += list(actions[action] + objects[noun] + 0.1 * source.standard_normal((clips, WIDTH)))
            text = f"now let me show you how to {VERBS[action]} the {NOUNS[noun]}"
            lines.append(f"v{video}\t{start}\t{len(rows) * SECONDS}\t{text}")
        np.save(features / f"v{video}.npy", np.array(rows, dtype=np.float32))
    captions = file_with(folder / "captions.tsv", "\n".join(lines) + "\n")
    return features, captions
