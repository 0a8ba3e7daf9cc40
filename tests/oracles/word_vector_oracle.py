"""Word2Vec and GloVe one number at a time, as their papers and original programs describe them; slow and obvious.

Updates of a block of examples are computed from the same vectors and then added, as in the package.
"""

import math

STEPS, LIMIT = 1000, 6.0


def tabled_sigmoid(score: float) -> float:
    """The sigmoid as the original program reads it: a table of 1000 steps on [-6, 6], 0 or 1 outside."""
    if score > LIMIT:
        return 1.0
    if score < -LIMIT:
        return 0.0
    index = min(int((score + LIMIT) * (STEPS / LIMIT / 2)), STEPS - 1)
    return 1 / (1 + math.exp(-(index / STEPS * 2 - 1) * LIMIT))


def word2vec_block(inputs, tables, examples, learning_rate):
    """(new inputs, new tables, loss): lists of lists.

    Args:
        inputs: the input vectors.
        tables: output tables by name.
        examples: of each, the context words, and by the name of a table its (row, label, whether it is a tree) list.
    """
    width = len(inputs[0])
    new_inputs = [list(row) for row in inputs]
    new_tables = {name: [list(row) for row in table] for name, table in tables.items()}
    loss = 0.0
    for contexts, outputs in examples:
        hidden = [sum(inputs[word][k] for word in contexts) / len(contexts) for k in range(width)]
        gradient = [0.0] * width
        for name, row, label, is_tree in outputs:
            vector = tables[name][row]
            score = sum(a * b for a, b in zip(hidden, vector, strict=True))
            loss += math.log1p(math.exp(-score if label else score))
            if is_tree and abs(score) >= LIMIT:
                continue
            step = (label - tabled_sigmoid(score)) * learning_rate
            for k in range(width):
                gradient[k] += step * vector[k]
                new_tables[name][row][k] += step * hidden[k]
        for word in contexts:  # in full, not divided by the number of context words
            for k in range(width):
                new_inputs[word][k] += gradient[k]
    return new_inputs, new_tables, loss


def glove_block(words, contexts, word_squares, context_squares, entries, learning_rate, maximum_count, power):
    """(the four new tables, the cost) after a block of entries (word, context, count); the last column is the bias."""
    width = len(words[0]) - 1
    old = [words, contexts, word_squares, context_squares]
    new = [[list(row) for row in table] for table in old]
    cost = 0.0
    for i, j, count in entries:
        error = sum(words[i][k] * contexts[j][k] for k in range(width))
        error += words[i][width] + contexts[j][width] - math.log(count)
        weighted = (1.0 if count >= maximum_count else (count / maximum_count) ** power) * error
        cost += 0.5 * weighted * error
        for k in range(width + 1):
            of_word = weighted * (contexts[j][k] if k < width else 1.0)
            of_context = weighted * (words[i][k] if k < width else 1.0)
            for table, squares, row, gradient in ((0, 2, i, of_word), (1, 3, j, of_context)):
                step = max(-100.0, min(100.0, gradient)) * learning_rate
                new[table][row][k] -= step / math.sqrt(old[squares][row][k])
                new[squares][row][k] += step * step
    return new, cost


def huffman_codes(counts):
    """The turns to each word by merging the two lightest nodes again and again; a list of strings.

    Of nodes with equal counts the newest inner one goes last among inner ones, and inner ones go before words, as in
    the original program; among words the last one goes first.
    """
    nodes = [(count, 1, -word, [(word, "")]) for word, count in enumerate(counts)]
    made = 0
    while len(nodes) > 1:
        nodes.sort(key=lambda node: node[:3])
        first, second = nodes[:2]
        leaves = [(word, "0" + code) for word, code in first[3]] + [(word, "1" + code) for word, code in second[3]]
        nodes = [*nodes[2:], (first[0] + second[0], 0, made, leaves)]
        made += 1
    return [code for _, code in sorted(nodes[0][3])]
