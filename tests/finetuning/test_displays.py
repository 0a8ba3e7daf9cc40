"""How a model and the result of a training show themselves, in a session of Python and in a notebook."""

import bertsmith
from bertsmith.recipes.finetuning.run import summary_lines


def test_a_model_and_a_result_show_themselves_in_a_line_and_in_a_table(tmp_path, capsys) -> None:
    out = tmp_path / "run"
    result = bertsmith.finetune(
        "starter", "spam", out, seeds=2, epochs=0.1, baselines=False, device="cpu", precision="fp32", refit=False
    )
    accuracy = result.runs[result.best].scores["accuracy"]
    assert repr(result) == f"<FinetuningResult: spam, accuracy {accuracy:.4f}, 2 seeds>"
    page = result._repr_html_()
    assert "<th>seed</th><th>accuracy</th>" in page
    assert page.count("<tr><td>") == 2
    assert page.count("<svg") >= 2  # the loss, and a score
    assert repr(bertsmith.load(out)) == "<Model 'run': classification, 2 labels; classify, embed, features>"
    assert repr(bertsmith.load("starter")).startswith("<Model 'starter': no task head; fill, embed")
    few = "scores on 8 dev examples depend mostly on chance; give more with --dev, or score all with --folds"
    assert few in summary_lines(result.report)
    # With a file of dev examples, --folds is refused.
    assert few.partition(", or")[0] in summary_lines({**result.report, "held_out": False})
