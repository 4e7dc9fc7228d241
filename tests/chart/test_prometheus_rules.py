"""Prometheus rules by Prometheus' own tool: they are valid, and fire on a platform in trouble only."""

import subprocess
from pathlib import Path

import yaml

from tests.cached import tool

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm/files/prometheus-rules.yaml"
TESTS = Path(__file__).parent / "prometheus-rules-test.yaml"


def promtool(*arguments: str) -> str:
    """Run promtool; return its output, which says SUCCESS."""
    process = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_the_rules_are_valid() -> None:
    alerts = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert f"SUCCESS: {len(alerts)} rules found" in promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))


def test_alerts_fire_on_a_platform_in_trouble_and_not_on_one_that_is_well() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(TESTS))


def test_every_alert_is_tested_to_fire_and_not_to_fire() -> None:
    alerts = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    well, *troubled = yaml.safe_load(TESTS.read_text())["tests"]
    assert {case["alertname"] for case in well["alert_rule_test"] if "exp_alerts" not in case} == alerts
    fired = "".join(
        sample["labels"] for case in troubled for check in case["promql_expr_test"] for sample in check["exp_samples"]
    )
    assert {alert for alert in alerts if f'"{alert}"' in fired} == alerts
