"""Every module has a test file of its name, or is listed here with the file that tests it."""

from __future__ import annotations

from pathlib import Path

import histnetq

PACKAGE, TESTS = Path(histnetq.__file__).parent, Path(__file__).parents[1]
# Modules without a test file of their name, by the file that tests them.
TESTED_BY = {
    "bags/test_bags.py": ("bags/checks bags/class_names bags/constructors bags/indexing bags/known_classes"),
    "bags/test_memmap.py": "bags/fingerprint",
    "cli/test_commands.py": (
        "cli/compare cli/evaluate cli/fit cli/options cli/predict cli/report cli/tune workflows/model_cards"
    ),
    "cli/test_judge.py": "workflows/judge_files",
    "cli/test_interrupts.py": "cli/group cli/info training/progress",
    "datasets/test_archives.py": "datasets/dataset datasets/sources",
    "datasets/test_downloads.py": "cli/data datasets/cache",
    "datasets/test_submissions.py": "workflows/lequa cli/lequa",
    "evaluation/test_errors.py": "evaluation/comparison",
    "evaluation/test_plots.py": "evaluation/plot_style",
    "kernels/test_safety.py": "kernels/jit kernels/label_draws kernels/likelihood_loops",
    "kernels/test_threads.py": "kernels/cores",
    "laws/test_kernels.py": "kernels/compiled kernels/plain kernels/precision",
    "laws/test_poolings.py": "nn/pooling",
    "laws/test_quantifiers.py": (
        "bags/same_features quantifiers/base"
        " quantifiers/classical/baseline quantifiers/networks/set_networks quantifiers/networks/stored_network"
    ),
    "nn/test_gaussians.py": "kernels/gaussians_compiled kernels/gaussians_plain quantifiers/networks/gmnet",
    "nn/test_histograms.py": "nn/squashing",
    "nn/test_likelihood.py": "kernels/likelihood_compiled kernels/likelihood_plain",
    "nn/test_network.py": "nn/encoders quantifiers/networks/encoders",
    "persistence/test_classifier_files.py": "persistence/tree_files quantifiers/classical/stored_posteriors",
    "persistence/test_onnx_graphs.py": "persistence/onnx_classifiers quantifiers/networks/onnx_layers",
    "persistence/test_payloads.py": "persistence/skops_files",
    "persistence/test_saving.py": "persistence/parameter_text quantifiers/loading",
    "persistence/test_stored_parameters.py": "bags/limits",
    "persistence/test_tampered.py": "persistence/model_files",
    "project/test_package.py": "cli/demo report/demo",
    "project/test_surfaces.py": "registry uncertainty/methods workflows/reading",
    "quantifiers/classical/test_on_features.py": (
        "quantifiers/classical/energy quantifiers/classical/hdx quantifiers/classical/readme"
    ),
    "quantifiers/classical/test_posteriors.py": (
        "quantifiers/classical/counting quantifiers/classical/kdey"
        " quantifiers/classical/matching quantifiers/classical/one_against_rest"
        " quantifiers/classical/rescaling quantifiers/row_posteriors"
    ),
    "quantifiers/classical/test_pretrained.py": (
        "quantifiers/classical/bag_prior quantifiers/classical/cell_tokens quantifiers/classical/pretrained_network"
        " quantifiers/classical/simplex_cells uncertainty/posterior"
    ),
    "quantifiers/classical/test_thresholds.py": (
        "quantifiers/classical/friedman quantifiers/classical/label_shift quantifiers/classical/ordinal"
        " quantifiers/classical/quadratic"
    ),
    "quantifiers/composed/test_members.py": "quantifiers/composed/corrected quantifiers/composed/ensemble",
    "quantifiers/networks/test_deep_quantifier.py": "quantifiers/networks/histnetq",
    "quantifiers/networks/test_emnetq.py": "uncertainty/standard_errors",
    "quantifiers/networks/test_quanet.py": "nn/sequence",
    "report/test_page.py": "report/templates report/figures report/table_report",
    "sketches/test_sketch.py": ("sketches/networks sketches/posteriors sketches/sketcher sketches/streams"),
    "sketches/sql/test_query.py": "sketches/cell_rules sketches/sql/cells sketches/sql/dialects",
    "sketches/test_tables.py": "cli/sketch sketches/on_dask",
    "tables/test_budget.py": "tables/parquet_files tables/row_buffers",
    "tables/test_columns.py": "bags/table_facts report/sentences tables/column_inspection",
    "tables/test_files.py": "tables/json_files",
    "tables/test_json_lines.py": "tables/json_values",
    "tables/test_images.py": "tables/image_files",
    "tables/test_long_tables.py": "tables/csv_files tables/names tables/proportions tables/table_files",
    "tables/test_scores.py": "quantifiers/classical/given_scores workflows/row_probabilities",
    "tables/test_text_columns.py": "bags/text_features",
    "test_errors.py": "cli/wording",
    "test_metrics.py": "ordinal_metrics",
    "training/pretraining/test_label_pretraining.py": (
        "training/pretraining/features_start training/pretraining/gmnet_start training/pretraining/head_pretraining"
        " training/pretraining/histnetq_start training/pretraining/training_rows"
    ),
    "training/test_encoding.py": "kernels/dense_compiled training/batches",
    "training/test_loop.py": "training/checkpoint training/options",
    "uncertainty/test_audit.py": "workflows/bag_audits uncertainty/rogan_gladen uncertainty/row_samples",
    "uncertainty/test_bayes.py": "uncertainty/likelihoods",
    "uncertainty/test_conformal.py": "uncertainty/capabilities bags/shared_rows uncertainty/intervals",
    "uncertainty/test_trust.py": ("sketches/moments uncertainty/bootstrap uncertainty/groups uncertainty/mixture_test"),
    "web/test_app.py": (
        "cli/serve web/children web/documentation web/estimate_jobs web/estimate_work web/jobs"
        " web/learn_process web/learning web/schemas web/startup web/tables"
    ),
    "web/test_attacks.py": (
        "tables/parquet_pages web/errors web/limits web/security web/serializers web/server web/uploads"
    ),
    "web/test_crowds.py": "web/metrics web/model_store web/places",
    "web/test_workers.py": "web/frames web/tasks web/worker",
    "workflows/monitoring/test_alerts.py": "workflows/monitoring/null_simulation",
    "workflows/monitoring/test_monitor.py": (
        "cli/monitor evaluation/monitor_plots report/monitor_page report/prometheus workflows/monitoring/chunk_reading"
        " workflows/monitoring/chunks workflows/monitoring/state"
    ),
    "workflows/test_calibrating.py": "uncertainty/half_splits",
    "workflows/test_candidates.py": "quantifiers/classical/classifiers workflows/fitting workflows/hold_out",
    "workflows/test_judging.py": "workflows/judge_columns workflows/judge_tables",
    "workflows/test_transitions.py": "cli/transitions",
    "workflows/test_workflows.py": "workflows/auditing workflows/estimating",
}


def test_every_module_has_a_test_file():
    modules = [path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py")]
    named = {module for module in modules if (TESTS / module.parent / f"test_{module.name}.py").is_file()}
    listed = [Path(module) for some in TESTED_BY.values() for module in some.split()]
    assert not [file for file in TESTED_BY if not (TESTS / file).is_file()], "a test file of the list is gone"
    assert len(listed) == len(set(listed)), "a module is listed twice"
    unnamed = {module for module in modules if not module.name.startswith("__")} - named
    assert not unnamed - set(listed), "add tests/<package>/test_<module>.py, or list where the module is tested"
    assert not set(listed) - unnamed, "take modules off the list that are gone or have a test file of their name"
