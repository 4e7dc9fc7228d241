"""Table of the tests that only `make verify` runs, each with the reason; docs/testing.md describes the tiers.

The entries of a file are `function`, `[parameter]`, `function[parameter]`, or `*` for every test in it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_VERSIONS = Path(__file__).parents[1] / "core" / "store" / "migrations" / "versions"
#: Revisions of the schema but the last two.
_EARLIER = tuple(path.name.partition("_")[0] for path in sorted(_VERSIONS.glob("0*.py"))[:-2])

_REASONS: Mapping[str, Mapping[str, str]] = {
    "tests/system/test_documented_exports.py": {"*": "needs PyTorch, TensorFlow, JAX and others"},
    "tests/system/test_documented_commands.py": {
        "[docs/gangs.md]": "20 s; gangs are in every run, in test_gang_contract.py",
        "[docs/sdk.md]": "14 s; the client is in every run, in test_client.py",
        "[docs/quickstart.md]": "half a minute, of which most is a comparison; README.md has the same in every run",
        **dict.fromkeys(
            ("[docs/cli.md]", "[docs/local.md]", "[docs/how-to/sweep.md]"),
            "a minute; every command and option that a page names is compared with the table of them in every run",
        ),
    },
    "tests/system/test_packaged_datasets.py": {"*": "downloads 270 MB of Debian's packages"},
    "tests/system/test_packaged_examples.py": {"*": "downloads 550 MB of Debian's packages"},
    "tests/system/test_cluster_measures.py": {
        "test_the_box_of_lammps_has_one_energy_and_its_time_in_all_reduce_is_measured": (
            "downloads LAMMPS twice, 200 MB; ranks of MPI are measured in every run, in test_local_gangs.py"
        )
    },
    "tests/system/test_framework_trainings.py": {
        "test_two_processes_train_a_model_that_is_evaluated_next_and_is_better_than_untrained": (
            "installs PyTorch, TensorFlow and JAX; variables are in every run, in unit/test_framework_gangs.py"
        )
    },
    "tests/system/test_images.py": {"*": "unpacks every image, 3 GB of packages"},
    "tests/system/test_sboms.py": {"*": "builds images for their bills of materials"},
    "tests/system/test_envoy.py": {"*": "needs Envoy and helm"},
    "tests/system/test_installed_package.py": {
        "test_the_server_is_fetched_by_uv": "downloads 130 MB of packages; the installed server is in every run",
        "test_pip_installs_client_and_server": "downloads as many; the installed server is in every run",
    },
    "tests/system/test_model_comparisons.py": {
        "test_a_comparison_that_is_disturbed_by_kills_has_the_verdict_of_one_that_is_not": (
            "two comparisons; that kills change no results is in every run, in test_chaos.py"
        ),
        "test_a_person_compares_two_models_replays_the_worst_and_keeps_the_report": (
            "15 s; each step is in every run, in web/test_model_comparison_pages.py and web/test_comparison_report.py"
        ),
    },
    "tests/system/test_examples.py": {
        "test_the_comparison_decides_between_two_models": "a comparison; README.md has one in every run",
        "test_the_sweep_draws_a_heat_map": "9 s; sweeps of the client are in every run, in test_cli.py",
        "test_the_notebook_runs_from_its_first_cell_to_its_last": "7 s; its calls are in every run, in test_client.py",
    },
    "tests/system/test_recipes.py": {
        "test_the_tests_of_the_recipes_pass": "45 s; that the generators write these files is in every run",
        "test_a_recipe_alone_generates_the_files_that_the_table_names": (
            "a minute of generators; every run has them once, after all recipes"
        ),
    },
    "tests/system/test_openenv.py": {
        "*": "needs the package openenv, 450 MB; contracts/test_environment_registration.py is in every run"
    },
    "tests/simulators/test_flow.py": {
        "test_forces_and_frequency_are_those_that_are_published": "half a minute of a finer lattice",
        "test_the_baseline_has_less_drag_and_less_lift_than_a_cylinder_at_rest": "20 s of flows",
    },
    "tests/system/test_flow_control.py": {
        "test_a_controlled_flow_is_computed_by_ranks_of_the_worker": (
            "34 s of flows; ranks of MPI are in every run, in test_local_gangs.py"
        ),
        "test_a_lost_rank_is_a_strike_and_the_task_is_run_again_with_the_same_result": "minutes of flows",
        "test_without_a_sandbox_ranks_end_with_their_evaluator_and_leave_nothing": "half a minute of flows",
    },
    "tests/system/test_gang_kills.py": {
        "*": "half an hour; a rank that is killed is in every run, in test_gang_contract.py",
    },
    "tests/system/test_hostile_ranks.py": {"*": "a minute; the attacks on a rank's sandbox are in every run"},
    "tests/system/test_rank_attacks.py": dict.fromkeys(
        ("[slurm]", "[pods]"), "half a minute; ranks of this machine are in every run"
    ),
    "tests/simulators/test_compiled_step.py": {
        "test_a_thousand_drives_are_equal_with_the_compiled_step_and_with_plain_python": "two minutes of drives"
    },
    "tests/unit/test_one_sided_bets.py": {
        "test_the_error_rate_is_kept_in_many_repetitions_and_long_lists": "a minute; shorter lists are in every run",
    },
    "tests/web/test_accessible_pages.py": {
        "test_pages_are_accessible_and_fit_in_both_modes_and_widths": "axe on 21 pages, twice; every run has each once",
    },
    **{
        f"tests/web/{file}.py": {"[dark]": "the same in the other colours; light ones are in every run"}
        for file in (
            "test_chart_colours",
            "test_charts",
            "test_pages",
            "test_replay_player",
            "test_simulation_page",
            "test_task_list",
        )
    },
    "tests/web/test_reference_page.py": dict.fromkeys(
        ("[dark]", "[1280-light]"), "axe on the largest page; a narrow window in light colours is in every run"
    ),
    "tests/system/test_web_page.py": {
        "test_a_simulation_is_found_opened_and_downloaded_by_keyboard": "7 s; forms by keyboard are in every run",
        "test_two_models_are_compared_and_replayed_side_by_side": "12 s; in every run in web/test_comparison_page.py",
    },
    "tests/system/test_submit_page.py": {
        "test_the_whole_way_is_gone_by_keyboard_alone": "8 s; the whole way, and a page by keyboard, are in every run",
    },
    "tests/system/test_gate.py": {
        "test_too_few_scenarios_leave_it_undecided_and_a_wider_margin_does_not": (
            "9 s; verdicts are in every run in unit/test_running_verdict.py, exit codes in the tests beside it"
        ),
    },
    "tests/simulators/test_worlds.py": dict.fromkeys(
        ("[highway]", "[pettingzoo_multiwalker]"), "69 and 23 s; four other simulators are in every run"
    ),
    "tests/system/test_projects.py": {
        **dict.fromkeys(("[onnx-car_street]", "[onnx-cartpole]"), "a project in Python is in every run"),
        "test_a_model_that_does_not_fit_is_exit_code_1_and_what_cannot_be_checked_2": (
            "15 s; a project that fits is in every run"
        ),
    },
    "tests/system/test_local_play.py": {
        "test_two_play_at_once_and_leave_nothing": "4 s; that one play leaves nothing is in every run",
        "test_a_model_that_prints_without_end_does_not_fill_the_memory": "the same of a platform is in every run",
        **dict.fromkeys(
            ("[model1-cartpole-options1]", "[model2-cartpole-options2]"), "two simulations more; two are in every run"
        ),
        **dict.fromkeys(
            (
                "[it does not answer]",
                "[it raises]",
                "[its action has another shape]",
            ),
            "a model that is not Python, one without a class, and one that ends its process are in every run",
        ),
    },
    "tests/system/test_one_file.py": {
        "test_the_baseline_of_the_recipe_is_played_without_a_server": "4 s; that a platform plays it is in every run",
    },
    "tests/system/test_worlds.py": {
        f"test_a_replay_that_is_not_there_is_a_problem_without_an_exception[{world}]": "two worlds are in every run"
        for world in ("cartpole", "highway", "mujoco_reacher", "pettingzoo_simple_tag", "pettingzoo_tictactoe")
    },
    "tests/chart/test_prometheus_rules.py": {
        "test_the_rules_are_valid": "needs promtool",
        "test_alerts_fire_on_a_platform_in_trouble_and_not_on_one_that_is_well": "needs promtool",
    },
    "tests/system/test_gym.py": {
        **dict.fromkeys(("[sync]", "[highway]", "[pettingzoo_tictactoe]"), "others of the same kind are in every run"),
        "test_stable_baselines3_trains_on_an_environment": "needs PyTorch and Stable-Baselines3, 900 MB",
        "test_a_dqn_that_is_trained_and_exported_scores_what_training_showed": "needs PyTorch and Stable-Baselines3",
        "test_an_agent_that_masks_illegal_moves_trains_on_connect_four_and_plays_legally": "needs PyTorch",
        "test_an_agent_of_pettingzoo_plays_and_learns_connect_four": "needs PettingZoo; half a minute of games",
    },
    "tests/system/test_gang_contract.py": {"[slurm]": "needs Slurm", "[pods]": "two minutes; a part is in every run"},
    "tests/system/test_slurm.py": {"*": "needs Slurm"},
    "tests/system/test_slurm_gangs.py": {"*": "needs Slurm"},
    "tests/contracts/test_mirrored_projects.py": {
        f"[whole {part}]": "a minute or more; three files of the API are in every run" for part in range(1, 7)
    },
    "tests/contracts/test_request_values.py": {
        "test_no_parameter_is_a_server_error[sqlite]": "PostgreSQL, which refuses more, is in every run",
        "test_no_number_or_text_of_a_body_is_a_server_error[sqlite]": "PostgreSQL, which refuses more, is in every run",
    },
    "tests/contracts/test_backups.py": {
        "test_a_home_is_backed_up_while_simulations_run_and_goes_on_elsewhere": "half a minute of simulations",
        "test_a_postgresql_and_a_bucket_are_backed_up_while_simulations_run": "half a minute of simulations",
    },
    "tests/contracts/test_lease_interleavings.py": {
        "[deep]": "two preemptions, minutes; one is in every run",
        "test_each_task_counts_once_whichever_three_meet": "minutes; two that meet are in every run",
    },
    "tests/contracts/test_failed_passes.py": {"[committed]": "15 s; transactions that are refused are in every run"},
    "tests/contracts/test_leader_interleavings.py": {"[deep]": "three preemptions; one is in every run"},
    "tests/contracts/test_claim_interleavings.py": {"[deep]": "all orders; those of one preemption are in every run"},
    "tests/contracts/test_upgrades.py": {
        f"[{revision}-{engine}]": "the first schema, the last two and that of 0.2.0 are in every run"
        for engine in ("sqlite", "postgresql")
        for revision in _EARLIER
        if revision != "0017" and (revision, engine) != ("0001", "sqlite")
    },
    "tests/contracts/test_slurm.py": {"*": "needs Slurm"},
    "tests/contracts/test_job_workers.py": {
        **dict.fromkeys(
            [
                f"test_every_kind_of_job_is_done_from_its_own_queue[{kind}]"
                for kind in ("prepare", "prefetch", "log", "collect", "delete", "replay", "sweep")
            ],
            "a kind of each way of running is in every run",
        ),
        **dict.fromkeys(
            (
                "test_a_job_with_other_arguments_than_a_platform_s_is_refused[stage]",
                "test_a_record_that_cannot_be_read_does_not_stop_its_kind[stage]",
                "test_callbacks_webhooks_repeats_and_dependents_are_ignored[stage]",
                "test_what_is_due_is_done_without_redis_and_through_it_afterwards[severed-stage]",
                "test_without_redis_jobs_fail_time_out_and_end_as_with_it[stage]",
            ),
            "jobs in forked processes are in every run",
        ),
        **dict.fromkeys(
            (
                "test_a_job_that_runs_when_redis_is_lost_runs_to_its_end[register]",
                "test_the_jobs_of_a_killed_role_are_done_by_another_within_seconds[register]",
            ),
            "resident jobs are in every run",
        ),
    },
    "tests/system/test_plants.py": {
        "test_a_plant_with_state_in_globals_has_equal_results_for_any_number_of_workers": (
            "9 s; that nothing is left of a scenario in any order is in every run, in test_plant_simulator.py"
        ),
    },
    "tests/system/test_rushes.py": {
        "test_callers_at_once_get_a_result_for_each_task_and_equal_ones": "7 s; a rush after kills is in every run",
    },
    "tests/simulators/test_plant_simulator.py": {
        "[abort]": "a segmentation fault is in every run",
        "[sleep]": "a plant that computes for ever is in every run",
        "[infinite]": "a NaN is in every run",
    },
    "tests/contracts/test_mlflow_imports.py": {
        "*": "needs MLflow, 800 MB; a server that answers like it is in every run"
    },
    "tests/contracts/test_rows.py": {
        **dict.fromkeys(
            ("[savedmodel]", "[keras]", "[frozen_graph]", "[jax]", "[xgboost]", "[lightgbm]"),
            "needs its library, and 10 s of imports; ONNX and LiteRT are in every run",
        )
    },
    "tests/contracts/test_remembering_models.py": {
        "[scikit_learn-numpy's generator]": "10 s of imports; a Python model with the same generator is in every run"
    },
    "tests/contracts/test_dependency_attacks.py": {"[large_page]": "14 s; limits of bytes are in every run"},
    "tests/contracts/test_dataset_versions.py": {
        "[20000]": "13 s; a tenth of the files is in every run",
        **dict.fromkeys(
            (
                "test_referenced_objects_are_kept_and_all_others_are_deleted[2]",
                "test_referenced_objects_are_kept_and_all_others_are_deleted[3]",
            ),
            "two orders of events are in every run",
        ),
    },
    "tests/contracts/test_executor.py": {"[slurm]": "needs Slurm"},
    "tests/contracts/test_object_store.py": {"[swift]": "a second S3 server; MinIO is in every run"},
    "tests/simulators/test_tensorflow_models.py": {"*": "needs TensorFlow, 600 MB; LiteRT and ONNX are in every run"},
    "tests/sandbox/test_scenario_processes.py": {
        **dict.fromkeys(
            (
                "test_no_channel_carries_a_note_to_the_program_of_the_next_scenario[user-3]",
                "test_no_channel_carries_a_note_to_the_program_of_the_next_scenario[root-2]",
                "test_a_program_starts_nothing_reaches_nobody_and_ends_with_its_scenario[user-3]",
                "test_a_program_starts_nothing_reaches_nobody_and_ends_with_its_scenario[root-2]",
            ),
            "root at level 3, and an ordinary user at level 2, are in every run",
        )
    },
    "tests/simulators/test_hdf5_and_frozen_graphs.py": {
        "*": "needs TensorFlow; graphs are read in every run, in unit/test_tensorflow_graph.py"
    },
    "tests/simulators/test_mujoco.py": {
        "test_the_baselines_are_better_than_doing_nothing": "19 s; that of pettingzoo is in every run",
        **dict.fromkeys(
            (
                "[mujoco_humanoid_standup]",
                "[mujoco_half_cheetah]",
                "[mujoco_swimmer]",
                "[mujoco_hopper]",
                "[mujoco_walker2d]",
                "[mujoco_reacher]",
                "[mujoco_inverted_double_pendulum]",
            ),
            "four tasks of other shapes are in every run",
        ),
    },
    "tests/simulators/test_recurrent_tensorflow_models.py": {
        "test_a_state_is_fed_back_until_the_scenario_ends": "needs TensorFlow; a model of it is in every run",
        "test_a_recurrent_cell_gives_equal_results_in_any_order_and_on_any_worker": "needs TensorFlow",
        "test_an_input_that_no_output_is_paired_with_is_refused": "needs TensorFlow; ONNX is in every run",
        "test_a_state_of_a_lite_model_is_fed_back_until_the_scenario_ends[1]": "a batch is in every run",
    },
    "tests/simulators/test_estimator_models.py": {
        "*": "needs scikit-learn, XGBoost and LightGBM; files are recognised in every run, in unit/test_file_kinds.py"
    },
    "tests/simulators/test_pytorch_models.py": {
        "*": "needs PyTorch, 5.3 GB; files are recognised in every run, in unit/test_formats.py"
    },
    "tests/system/test_equal_results.py": {
        "*": "the libraries of all formats; test_determinism.py and the tests of each format are in every run"
    },
    "tests/system/test_model_references.py": {"*": "half a minute; contracts/test_model_imports.py is in every run"},
    "tests/system/test_openenv_server.py": {
        "*": "needs OpenEnv, 450 MB; session processes are in every run, in contracts/test_openenv_sessions.py"
    },
    "tests/system/test_package_indexes.py": {"*": "needs Debian's PyTorch, 270 MB of packages"},
    "tests/simulators/test_wasm_models.py": {
        "test_an_example_in_c_has_the_results_of_the_baseline_in_python": "needs clang, lld and wasi-libc",
        "test_the_example_in_rust_has_the_results_of_the_baseline_in_python": "needs cargo with targets of wasm32",
        **dict.fromkeys(
            ("[1-global]", "[3-global]", "[1-memory]", "[3-memory]"),
            "modules with WASI are in every run, also in a batch",
        ),
        "test_output_of_a_module_is_in_the_log_to_a_limit": "other functions of WASI are in every run",
        **dict.fromkeys(("[fuel]", "[type]", "[allocation]", "[import]"), "other refusals are in every run"),
        **dict.fromkeys(("[division]", "[stack]", "[code]", "[exit]", "[growth]"), "other faults are in every run"),
    },
    "tests/simulators/test_wasm_components.py": {
        "test_the_example_in_rust_has_the_results_of_the_baseline_in_python": "needs cargo with a target of wasm32",
        "test_the_example_in_python_has_the_results_of_the_baseline_in_python": "needs componentize-py, 18 MB of code",
        "test_a_component_sees_no_files_no_network_and_a_clock_and_numbers_of_its_own": "needs componentize-py",
        **dict.fromkeys(("[global-1]", "[global-3]"), "components with WASI are in every run, also in a batch"),
        **dict.fromkeys(("[division]", "[stack]", "[list]"), "other faults are in every run"),
        **dict.fromkeys(("[start]", "[interface]"), "other refusals are in every run"),
    },
    "tests/simulators/test_fmu_models.py": {
        "*": "needs fmpy and its libraries, 90 MB; files are recognised in every run, in unit/test_file_kinds.py"
    },
    "tests/simulators/test_jax_models.py": {
        "*": "needs JAX, 400 MB; files are recognised in every run, in unit/test_file_kinds.py"
    },
    "tests/simulators/test_native_examples.py": {
        "test_the_example_in_rust_has_the_results_of_the_baseline_in_python": "needs cargo; C is in every run",
        "test_the_example_of_a_program_in_go_has_the_results_of_the_baseline_in_python": "needs Go; C is in every run",
    },
    "tests/simulators/test_car_street_evaluator.py": {"[tensorflow-keras]": "needs TensorFlow"},
    "tests/system/test_datasets.py": {
        "test_a_dataset_is_not_tried_if_the_model_is_refused_by_the_dataset_that_it_extends": "44 s; tries every world"
    },
    "tests/system/test_maps.py": {
        "test_a_conversion_survives_a_kill_of_its_process": "44 s; a killed registration is in every run"
    },
    "tests/system/test_model_dependencies.py": {
        "test_models_with_equal_locks_share_an_environment": "28 s; contracts/test_installer.py is in every run",
        r"[alpha>=7\n-only alpha==1.0 is available]": "a package that does not exist is in every run",
    },
    "tests/system/test_uploads.py": {
        "test_hundreds_of_idle_appends_do_not_block_other_requests": (
            "half a minute; stalled bodies are in every run, in test_stalled_requests.py"
        ),
        "test_tuspy_survives_kill_9": "35 s; another client's uploads survive kill -9 in every run",
        "test_tus_js_client_survives_kill_9": "needs Node.js; tuspy is in every run",
        "test_kill_9_never_loses_or_duplicates_bytes[sqlite]": "several API processes run on PostgreSQL",
    },
    "tests/system/test_generated_clients.py": {
        "*": "needs openapi-generator, oapi-codegen, Java and Node.js; another generator is in every run"
    },
    "tests/system/test_cli.py": {
        "test_zsh_completes": "needs zsh; bash is in every run",
        "test_fish_completes": "needs fish; bash is in every run",
    },
    "tests/system/test_client.py": {
        "test_a_script_that_has_read_a_table_ends_without_an_error": "a minute: 400 processes, of which ten would fail"
    },
    "tests/system/test_client_package.py": {"*": "half a minute: installs the package and mypy from the index"},
    "tests/system/test_demo_platform.py": {
        "[silent]": "a server that answers is in every run",
        "[ipv6]": "a server that answers is in every run",
        "test_the_platform_of_another_home_on_the_port_is_not_used": "starts two platforms",
        "test_on_a_terminal_the_demo_serves_its_page_until_it_is_terminated": "runs both simulations of the demo",
    },
    "tests/system/test_openapi_examples.py": {
        "test_every_example_of_a_request_is_accepted": "half a minute of simulations; responses are in every run"
    },
    "tests/system/test_schemathesis.py": {"[all-15]": "a short run of one phase is in every run"},
    "tests/system/test_hostile_models.py": {
        **{
            f"test_a_failure_in_a_street_has_a_named_result_and_other_scenarios_continue[{name}]": (
                "the same fault is in every run, in contracts/test_evaluator.py; what a sandbox refuses is in every run"
            )
            for name in (
                "hangs",
                "returns_after_the_deadline",
                "exits_with_the_code_of_success",
                "segfaults",
                "closes_every_descriptor",
                "calls_sys_exit",
                "raises",
                "writes_to_every_descriptor",
                "returns_nan",
                "returns_infinity",
                "returns_too_many_numbers",
                "returns_text",
                "returns_none",
            )
        },
        "test_in_a_shared_process_the_tasks_after_a_failure_are_run": (
            "the same models on a street are in every run, and in a shared process in contracts/test_evaluator.py"
        ),
    },
    "tests/system/test_chaos.py": {
        "[2]": "another order of deaths",
        "[3]": "another order of deaths",
        "[car_street]": "the same with another simulator",
        "test_after_a_kill_of_every_process_the_next_start_continues": "longer chaos",
        "test_roles_that_die_at_the_same_instant_are_all_restarted": "longer chaos",
        "test_evaluators_killed_repeatedly_never_make_a_scenario_crashed": "longer chaos",
        "test_a_process_killed_during_finalization_is_replaced_within_seconds": "longer chaos",
    },
    "tests/system/test_long_chaos.py": {"*": "sixteen seeds of one to three minutes; test_chaos.py is in every run"},
    "tests/system/test_redis_outages.py": {
        "test_redis_away_for_minutes_under_load_stops_nothing": "ten minutes; REDIS_OUTAGE_SECONDS shortens it",
        "test_a_role_that_hangs_is_killed_and_started_again": "a removed socket is in every run",
        "test_a_role_that_is_stopped_is_named_by_readyz_and_by_what_waits_for_it": (
            "a platform and its probes; the supervisor's note is in every run, in test_supervisor.py"
        ),
    },
    "tests/system/test_determinism.py": {
        "[idm]": "the same with another model; onnx is in every run",
        "[tflite]": "the same with another model; onnx is in every run",
    },
    "tests/chart/test_objects.py": {
        "test_monitors_are_valid_by_the_prometheus_operators_types": "needs a check built from its sources",
        "test_the_bootstrap_is_valid_by_envoys_schema": "needs a check built from Envoy's API",
        "test_an_invalid_bootstrap_is_detected": "needs a check built from Envoy's API",
    },
    "tests/cluster/test_cluster.py": {"*": "the tests' own cluster; every test on it would fail with it"},
    "tests/cluster/test_faults.py": {"*": "the tests' own cluster; every test on it would fail with it"},
    "tests/cluster/test_traces.py": {"*": "the tests' own cluster: leftovers of a killed session"},
    "tests/cluster/test_kueue.py": {"*": "needs Kueue"},
    "tests/cluster/test_mpi_operator.py": {"*": "needs the MPI operator"},
    "tests/cluster/test_policies.py": {"*": "needs kube-router"},
    "tests/cluster/test_production.py": {"*": "a cluster of its own"},
    "tests/cluster/test_pod_sandbox.py": {"*": "170 attacks, twice; the same attacks without a pod are in every run"},
    "tests/cluster/test_pod_deadlines.py": {"*": "a platform, and a minute at a CPU limit; without pods in every run"},
    "tests/cluster/test_scs_in_cluster.py": {"*": "a cluster of its own"},
    "tests/cluster/test_without_jobset.py": {"*": "a cluster of its own"},
    "tests/cluster/test_warm_without_jobset.py": {"*": "a cluster of its own"},
    "tests/cluster/test_gangs.py": {
        "test_ranks_of_mpi_connect_without_ssh": "one gang is in every run",
        "test_a_real_api_server_accepts_every_object_unchanged": "needs Trainer and the MPI operator",
        "test_a_rank_that_is_killed_three_times_fails_its_task_and_not_the_gang": "one gang is in every run",
        "test_a_gang_that_loses_a_pod_restarts_and_goes_on_from_its_checkpoint": "one gang is in every run",
        "test_each_slice_of_a_gang_has_an_exclusive_domain": "three nodes",
    },
    "tests/cluster/test_kubernetes_executor.py": {
        "test_a_missing_namespace_is_named_or_created": "a minute until the namespace is deleted",
    },
    "tests/cluster/test_warm.py": {
        "test_a_dispatcher_killed_before_labelling_loses_neither_launch_nor_workers": "one warm pod is in every run",
        "test_an_externally_deleted_warm_launch_is_missed_and_created_again": "one warm pod is in every run",
    },
    "tests/cluster/test_platform.py": {
        "test_the_packages_of_a_model_are_installed_by_a_job_and_reach_its_pods": (
            "two rollouts and a package index; a pod that gets its packages is in every run, in system/test_pod.py"
        ),
        "test_a_warm_pod_is_used_and_replaced_and_deleted_when_the_option_is_removed": (
            "76 s; a warm pod of the executor is in every run, in test_warm.py"
        ),
        "test_allowed_names_are_on_the_pods_and_the_operators_node_labels_win": (
            "two simulations; the refusals are in every run, the manifests in unit/test_manifests.py"
        ),
        "test_the_1_0_request_runs_to_its_end": "a minute of both processors; its first results are in every run",
        "test_a_gang_of_trainer_ends_like_its_program": "needs Kubeflow Trainer",
        "test_a_gang_of_the_mpi_operator_ends_like_its_program": "needs the MPI operator",
    },
    "tests/cluster/test_platform_faults.py": {
        "[evaluator]": "the runner and the model server are killed in every run",
        "test_a_deleted_pod_changes_no_result": "a pod is evicted in every run",
        "test_externally_deleted_launch_objects_change_no_result": "longer chaos",
        "test_a_client_continues_to_read_results_after_its_api_pod_is_killed": "longer chaos",
        "test_an_api_server_outage_longer_than_the_grace_period_changes_no_result": "longer chaos",
        "test_an_etcd_restart_changes_no_result": "longer chaos",
        "test_resizing_a_running_simulation_changes_no_result": "the executor's own test is in every run",
        "test_a_deleted_and_recreated_project_namespace_changes_no_result": "longer chaos",
        "test_a_lost_node_changes_no_result": "two nodes, and a minute until the node is given up",
    },
    "tests/contracts/test_starved_model_servers.py": {
        "test_a_model_server_that_is_hardly_run_keeps_its_deadline": (
            "a minute of a server that hardly runs; one with a tenth of a processor is in every run"
        ),
    },
    "tests/system/test_usage.py": {
        "test_the_usage_of_a_run_is_that_of_its_launch_and_ends_when_it_ends": (
            "47 s; the same after a kill is in every run"
        ),
    },
    "tests/system/test_looking_inside.py": {
        "test_the_command_line_lists_folders_prints_files_and_follows_a_rank": (
            "45 s; a page that follows a file is in every run"
        ),
    },
    "tests/system/test_program_files.py": {
        "test_a_resident_program_whose_first_rank_answers_wrongly_or_leaves_is_told_why": (
            "half a minute; faults of ranks are in every run, in test_gang_contract.py"
        ),
    },
    "tests/system/test_stalled_requests.py": {
        "test_guesses_of_the_token_are_slowed_per_caller_and_lock_out_nobody": (
            "24 s; the rates are in every run, in api/test_request_guard.py"
        ),
    },
    "tests/system/test_trusted_simulations.py": {
        "test_a_trusted_model_that_writes_its_score_is_on_no_leaderboard": (
            "28 s; what a trusted model may is in every run, in api/test_trusted_runs.py"
        ),
    },
    "tests/contracts/test_trusted_models.py": {
        "test_a_shared_library_that_is_loaded_again_after_a_fault_has_new_variables": (
            "25 s; a library's variables are in every run, in test_native_models.py"
        ),
    },
    "tests/system/test_full_disk.py": {
        "*": "35 s; a full disk is in every run, in api/test_full_disk.py and test_supervisor.py",
    },
    "tests/system/test_mcp.py": {
        "test_an_agent_reads_what_there_is_and_is_told_what_it_may_not_do": (
            "19 s; an agent that may change things is in every run"
        ),
    },
    "tests/system/test_gang_commands.py": {
        "test_an_executable_and_a_folder_with_one_are_sent_once_and_run": "8 s; a project of MPI is in every run",
    },
    "tests/system/test_generated_client.py": {
        "*": "half a minute; the document that it is generated from is in every run",
    },
    "tests/web/test_comparison_report.py": {
        "test_the_page_shows_how_far_the_report_is_and_then_offers_it": "18 s; the report itself is in every run",
    },
    "tests/system/test_release.py": {
        "*": "22 s; it is what a release runs",
    },
    "tests/system/test_heat.py": {
        "test_a_sweep_needs_no_model_and_gives_the_same_on_any_number_of_ranks": (
            "12 s; ranks are in every run, in test_gang_contract.py"
        ),
    },
    "tests/web/test_project_choice.py": {
        "test_a_file_is_uploaded_to_the_project_of_the_tab": "31 s; each request of a page is in every run",
    },
    "tests/unit/test_running_verdict.py": {
        "[population-binary]": "5 s; continuous scores are in every run",
        "[list-binary]": "5 s; continuous scores are in every run",
    },
    "tests/contracts/test_migrations.py": {
        "test_a_database_that_never_answers_is_given_up_after_the_timeout": "13 s of waiting",
    },
}

#: Tests whose like are in every run: the same with other parameters, or another of the same behaviour.
_LIKE: Mapping[str, tuple[str, ...]] = {
    "tests/contracts/test_job_workers.py": (
        "test_a_resident_job_that_ignores_its_timeout_is_killed_and_retried[hangs]",
        "test_callbacks_webhooks_repeats_and_dependents_are_ignored[raises-register]",
        "test_a_record_that_cannot_be_read_does_not_stop_its_kind[fields1-register]",
        "test_a_failed_job_is_enqueued_again_from_sql_after_pauses_that_double[register]",
        "test_the_job_of_a_killed_worker_is_done_again_in_seconds[register]",
        "test_a_job_that_raises_is_retried_and_then_listed_as_failed_with_its_traceback[register]",
        "test_a_job_that_is_enqueued_again_while_it_waits_or_runs_is_one_job[register]",
        "test_failed_jobs_are_requeued_by_the_rq_command[register]",
        "test_a_scheduled_entry_of_another_client_runs_no_function_outside_the_allow_list[register]",
        "test_a_kind_runs_as_many_jobs_at_once_as_its_concurrency_and_delays_no_other_kind[register]",
        "test_a_job_whose_worker_dies_at_each_attempt_is_listed_as_failed[register]",
        "test_a_job_is_ended_at_its_timeout_while_others_of_its_kind_continue[register]",
        "test_a_record_that_cannot_be_read_does_not_stop_its_kind[fields0]",
        "test_a_record_that_cannot_be_read_does_not_stop_its_kind[fields2]",
        "test_what_is_due_is_done_without_redis_and_through_it_afterwards[severed]",
        "test_callbacks_webhooks_repeats_and_dependents_are_ignored[good]",
        "test_a_resident_job_that_ignores_its_timeout_is_killed_and_retried[swallows]",
        "test_the_job_of_a_killed_parent_of_forked_jobs_is_done_again_and_its_process_does_not_outlive_it",
    ),
    "tests/contracts/test_row_attacks.py": (
        "[sandboxed-never ring]",
        "test_an_attack_on_its_rows_leaves_every_task_with_a_result_of_the_model[without a sandbox]",
    ),
    "tests/contracts/test_evaluator.py": (
        "test_a_models_fault_is_the_result_of_its_task_and_the_range_continues[launch]",
    ),
    "tests/contracts/test_failed_passes.py": (
        "[4-refused]",
        "[2-refused]",
        "[3-refused]",
    ),
    "tests/contracts/test_leases.py": ("test_every_task_ends_with_exactly_one_result_in_any_interleaving[sqlite]",),
    "tests/contracts/test_trusted_models.py": (
        "test_a_trusted_models_fault_has_the_words_of_an_isolated_one[answers late]",
        "test_a_model_that_is_loaded_again_after_a_fault_finds_nothing_either",
        "test_a_trusted_models_fault_has_the_words_of_an_isolated_one[answers NaN]",
        "test_a_trusted_models_fault_has_the_words_of_an_isolated_one[answers too little]",
        "test_a_trusted_models_fault_has_the_words_of_an_isolated_one[answers text]",
        "test_a_trusted_models_fault_has_the_words_of_an_isolated_one[answers nothing]",
        "test_a_trusted_models_fault_has_the_words_of_an_isolated_one[answers infinity]",
        "test_a_trusted_models_fault_has_the_words_of_an_isolated_one[answers too much]",
    ),
    "tests/contracts/test_program_models.py": (
        "test_a_program_that_takes_for_ever_misses_the_deadline_of_its_task",
        "test_a_fault_in_one_scenario_leaves_the_others_as_they_are",
        "test_the_results_are_the_same_in_every_run_and_order_of_tasks[1]",
    ),
    "tests/api/test_costs.py": (
        "test_no_json_of_allowed_size_holds_the_api[the smallest numbers]",
        "test_no_json_of_allowed_size_holds_the_api[integers of 4,000 digits]",
        "test_no_json_of_allowed_size_holds_the_api[objects]",
        "test_no_json_of_allowed_size_holds_the_api[members]",
        "test_no_json_of_allowed_size_holds_the_api[integers of 300 digits]",
        "test_no_json_of_allowed_size_holds_the_api[a long text of escapes]",
        "test_no_json_of_allowed_size_holds_the_api[a long word with separators]",
        "test_no_json_of_allowed_size_holds_the_api[an integer of all digits]",
        "test_no_json_of_allowed_size_holds_the_api[numbers of 700 digits]",
    ),
    "tests/simulators/test_worlds.py": (
        "[mujoco_hopper]",
        "[gru-noop]",
        "[pettingzoo_simple_spread]",
        "[classifier-cartpole]",
    ),
    "tests/simulators/test_mujoco.py": (
        "[mujoco_ant]",
        "[mujoco_pusher]",
    ),
    "tests/simulators/test_gymnasium.py": (
        "test_highway_results_are_equal_in_any_order_and_labelled_by_lanes_and_density",
    ),
    "tests/simulators/test_pettingzoo.py": ("test_the_baselines_are_better_than_doing_nothing",),
    "tests/simulators/test_onnx_models.py": (
        "test_a_recurrent_policy_gives_equal_results_in_any_order_and_on_any_worker[1]",
    ),
    "tests/simulators/test_openenv.py": (
        "test_a_fault_of_the_environment_ends_its_scenario_alone_and_is_not_the_models[raise]",
        "test_a_fault_of_the_environment_ends_its_scenario_alone_and_is_not_the_models[fork]",
        "test_a_fault_of_the_environment_ends_its_scenario_alone_and_is_not_the_models[signal]",
        "test_a_fault_of_the_environment_ends_its_scenario_alone_and_is_not_the_models[garbage]",
        "test_a_fault_of_the_environment_ends_its_scenario_alone_and_is_not_the_models[long]",
        "test_a_fault_of_the_environment_ends_its_scenario_alone_and_is_not_the_models[reset]",
    ),
    "tests/halo/test_fields.py": (
        "test_a_checkpoint_is_loaded_by_any_number_of_ranks[8]",
        "test_a_checkpoint_is_loaded_by_any_number_of_ranks[1]",
        "test_elements_of_all_types_and_components_keep_their_bytes[8]",
    ),
    "tests/halo/test_exchanges.py": (
        "test_every_cell_and_every_halo_is_that_of_one_process[8]",
        "test_a_program_in_c_has_the_numbers_of_python[8]",
    ),
    "tests/system/test_installed_package.py": ("test_a_project_is_begun_checked_and_played_without_a_checkout",),
    "tests/system/test_recipes.py": ("test_what_the_recipes_write_is_well_formed",),
    "tests/system/test_documented_commands.py": (
        "[docs/how-to/results.md]",
        "[docs/measuring-a-cluster.md]",
        "[docs/pipelines.md]",
    ),
    "tests/system/test_model_dependencies.py": (
        "test_a_simulation_waits_while_the_index_is_away_and_goes_on_when_it_is_back",
    ),
    "tests/system/test_local_play.py": (
        "test_a_broken_model_is_refused_as_by_a_platform[it is not Python]",
        "test_a_registered_dataset_is_played_from_its_platform[a map]",
        "[idm-program-options1-no scenarios to step through]",
        "[idm-car_street-options2-is not one of them]",
        "[idm-car_street-options3-speed]",
        "[idmm-car_street-options5-Did you mean idm]",
        "[idm-car_street-options4-nothing]",
        "test_a_model_may_be_trusted_on_ones_own_machine_whatever_a_server_there_allows",
        "test_a_broken_model_is_refused_as_by_a_platform[it has no class Model]",
        "test_the_results_are_those_of_a_simulation[idm_mobil]",
        "test_a_registered_dataset_is_played_from_its_platform[cartpole]",
    ),
    "tests/system/test_rushes.py": (
        "test_runners_are_forked_and_no_process_is_used_twice",
        "test_a_cold_start_says_in_the_events_that_processes_are_started",
    ),
    "tests/system/test_demo_platform.py": (
        "test_the_platform_ends_with_a_demo_that_is_terminated[starting]",
        "test_a_strangers_server_on_the_port_is_not_used[answers 200]",
        "test_another_port_than_that_of_the_platform_that_runs_is_said_to_have_no_effect",
        "test_the_demo_sends_the_token_of_the_platform_that_it_starts",
    ),
    "tests/system/test_chaos.py": ("test_killed_model_servers_do_not_change_the_results[noop]",),
    "tests/system/test_redis_outages.py": (
        "test_simulations_are_staged_run_and_finalized_while_packets_to_redis_are_dropped",
    ),
    "tests/system/test_cluster_measures.py": (
        "test_larger_messages_take_longer_and_fill_the_bandwidth",
        "test_two_days_are_compared_size_by_size",
        "test_two_days_are_drawn_over_each_other",
        "test_the_file_that_was_written_is_kept_where_that_is_wanted",
    ),
    "tests/system/test_projects.py": ("test_a_project_passes_its_test_and_fits[c]",),
    "tests/system/test_gang_runner.py": (
        "test_a_program_past_its_time_limit_is_ended_and_the_gang_continues",
        "test_a_gang_that_is_stopped_reports_finished_tasks_and_releases_the_rest",
    ),
    "tests/system/test_gym.py": (
        "[car_street]",
        "test_a_vector_of_a_server_is_one_of_gymnasium",
        "[options1-whole number]",
        "test_what_is_discrete_or_a_dict_in_gymnasium_is_so_here[cartpole]",
    ),
    "tests/system/test_gym_vectors.py": (
        "test_simulators_that_cannot_be_side_by_side_have_a_process_each",
        "[AutoresetMode.SAME_STEP]",
    ),
    "tests/system/test_cli.py": (
        "test_a_table_fits_a_narrow_terminal",
        "test_a_format_that_was_named_once_does_not_stay_with_a_file",
        "test_documents_are_printed_in_every_format[simulations get STREET-id]",
        "test_documents_are_printed_in_every_format[models get idm zero-name]",
        "test_bash_completes[words5-local]",
        "test_bash_completes[words6-mujoco_hopper]",
        "test_a_pipe_that_closes_early_is_no_error",
        "test_documents_are_printed_in_every_format[models]",
        "test_documents_are_printed_in_every_format[runtimes]",
    ),
    "tests/system/test_memory_kills.py": ("[launch]",),
    "tests/system/test_stalled_requests.py": ("[large]",),
    "tests/web/test_documentation_site.py": (
        "test_a_link_to_a_missing_page_and_one_to_a_missing_anchor_fail_the_build",
    ),
    "tests/web/test_comparison_report.py": (
        "test_a_large_report_has_the_worst_of_each_model_and_says_what_is_left_out",
    ),
    "tests/web/test_run_list.py": ("test_pages_of_a_dataset_and_of_a_model_name_a_comparison_once",),
    "tests/web/test_charts.py": ("[2-light]",),
    "tests/web/test_task_list.py": (
        "test_a_field_of_the_form_is_one_condition_or_two[..-10 to 20-conditions1]",
        "test_a_field_of_the_form_is_one_condition_or_two[=-near to far-conditions6]",
    ),
    "tests/web/test_model_comparison_pages.py": ("test_an_error_rate_is_given_in_percent_and_refused_in_percent",),
    "tests/unit/test_submission_declaration.py": ("test_a_field_is_added_in_one_file_by_hand",),
    "tests/system/test_account_commands.py": (
        "[members list --project red-user]",
        "[tokens list --project red-id]",
    ),
    "tests/system/test_gang_contract.py": (
        "test_a_fault_names_the_rank_the_signal_and_the_last_lines[local-SIGFPE]",
        "test_replicas_without_a_launcher_find_each_other_by_name[local]",
    ),
    "tests/system/test_pod.py": (
        "test_a_trusted_model_is_loaded_in_the_container_of_evaluators[onnx]",
        "test_a_killed_container_ends_the_pod_and_no_task_is_blamed[model_server]",
        "test_a_killed_evaluator_costs_no_result",
    ),
    "tests/system/test_supervisor.py": (
        "test_an_invalid_setting_is_an_error_instead_of_restarts[RUNNER_API_PORT]",
        "test_a_home_of_a_later_version_ends_the_platform_with_the_next_step[run]",
        "test_a_home_that_cannot_be_made_is_a_sentence_with_the_next_step[agent]",
        "test_a_signal_ends_every_role_even_a_role_that_ignores_it[2]",
    ),
    "tests/contracts/test_listing.py": (
        "test_pages_and_counts_are_those_of_a_plain_filter[sqlite]",
        "test_filters_that_match_nearly_nothing_read_an_index_and_no_row[sqlite]",
    ),
    "tests/system/test_determinism.py": ("[keeps_state]",),
    "tests/unit/test_model_server_client.py": (
        "[a high mark for wake-ups]",
        "[no timeouts]",
    ),
    "tests/contracts/test_many_worlds.py": (
        "test_scenarios_of_one_step_have_the_same_results_in_any_number_of_worlds[launch, sandboxed]",
    ),
    "tests/contracts/test_installer.py": ("test_an_index_that_is_gone_is_an_outage",),
    "tests/contracts/test_native_models.py": ("test_the_results_are_the_same_in_every_run_and_order_of_tasks[1]",),
    "tests/contracts/test_standalone_gangs.py": ("test_a_failed_program_is_a_crashed_task_with_its_reason",),
    "tests/simulators/test_plant_simulator.py": ("test_nothing_is_left_of_a_scenario_in_any_order[2]",),
    "tests/sandbox/test_scenario_processes.py": (
        "test_no_channel_carries_a_note_to_the_next_scenario[user-3]",
        "test_no_channel_carries_a_note_to_the_program_of_the_next_scenario[user-2]",
    ),
}

VERIFY: Mapping[str, Mapping[str, str]] = {
    file: {**_REASONS.get(file, {}), **dict.fromkeys(_LIKE.get(file, ()), "others like it are in every run")}
    for file in {**_REASONS, **_LIKE}
}

_ENTRY = re.compile(r"(?P<function>\w*)(\[(?P<parameter>.+)\])?")


def is_verify(node: str, table: Mapping[str, Mapping[str, str]] = VERIFY) -> bool:
    """Return whether a pytest node id (`file::function[parameters]`) is in the table."""
    file, _, test_name = node.partition("::")
    function, _, parameters = test_name.removesuffix("]").partition("[")
    return any(
        entry == "*"
        or (entry_function in ("", function) and (not entry_parameter or f"-{entry_parameter}-" in f"-{parameters}-"))
        for entry in table.get(file, ())
        for entry_function, entry_parameter in [_parts(entry)]
    )


def unknown_entries(sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the entries whose file or function is not in ``sources``, the text of each test file by its path."""
    for file, entries in VERIFY.items():
        for entry in entries:
            function, _ = _parts(entry)
            if file not in sources or (function and f"def {function}(" not in sources[file]):
                yield f"{file}: {entry}"


def _parts(entry: str) -> tuple[str, str]:
    match = _ENTRY.match(entry)
    assert match is not None
    return match["function"], match["parameter"] or ""
