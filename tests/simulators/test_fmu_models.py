"""FMUs as models: compiled from C by FMI 2.0 and 3.0, exported by PythonFMU, run in the sandbox, refusals named."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import uv

from runtimes import catalogue
from tests.archives import zipped
from tests.contracts.harness_processes import evaluator_pair, play_of, refusal_of, worker_spec
from tests.simulators.test_gymnasium import BASELINES, best_level, site, spec_of

PYTHON = b"""
class Model:
    def act(self, observation):
        return 2.0 * observation + 1.0
"""
#: A controller of noop: outputs are twice the inputs, and what a test computes as OFFSET. References 0 to 3 are the
#: inputs, 4 to 7 the outputs, 8 the seed; by FMI 3.0, 10 and 11 are the arrays of them.
COMMON = """
#include <stdlib.h>
typedef struct { double in[4], out[4]; int steps, seed; } Model;
static int calls;
#ifndef OFFSET
#define OFFSET 1
#endif
#ifndef STATUS
#define STATUS 0
#endif
static int step(Model *m, double time, double size) {
    (void)time; (void)size; calls++; m->steps++;
    for (int i = 0; i < 4; i++) m->out[i] = 2 * m->in[i] + OFFSET;
    return STATUS;
}
"""
FMI2 = """
#include "fmi2Functions.h"
#define C fmi2Component c
#define REFERENCES const fmi2ValueReference vr[], size_t n
fmi2Component fmi2Instantiate(fmi2String name, fmi2Type type, fmi2String guid, fmi2String resources,
    const fmi2CallbackFunctions *f, fmi2Boolean visible, fmi2Boolean logging) {
    if (type != fmi2CoSimulation) return 0;
#ifdef REFUSES
    f->logger(f->componentEnvironment, name, fmi2Error, "logStatusError", "no licence for %s", "this machine");
    return 0;
#endif
    return calloc(1, sizeof(Model));
}
void fmi2FreeInstance(C) { free(c); }
fmi2Status fmi2SetupExperiment(C, fmi2Boolean t, fmi2Real tolerance, fmi2Real start, fmi2Boolean s, fmi2Real stop) {
    return start == 0 ? fmi2OK : fmi2Error;
}
fmi2Status fmi2EnterInitializationMode(C) { return fmi2OK; }
fmi2Status fmi2ExitInitializationMode(C) { return fmi2OK; }
fmi2Status fmi2SetReal(C, REFERENCES, const fmi2Real v[]) {
    for (size_t i = 0; i < n; i++) ((Model *)c)->in[vr[i]] = v[i];
    return fmi2OK;
}
fmi2Status fmi2SetInteger(C, REFERENCES, const fmi2Integer v[]) { ((Model *)c)->seed = v[0]; return fmi2OK; }
fmi2Status fmi2GetReal(C, REFERENCES, fmi2Real v[]) {
    for (size_t i = 0; i < n; i++) v[i] = ((Model *)c)->out[vr[i] - 4];
    return fmi2OK;
}
fmi2Status fmi2DoStep(C, fmi2Real time, fmi2Real size, fmi2Boolean p) { return step(c, time, size); }
"""
FMI3 = """
#include "fmi3Functions.h"
#define C fmi3Instance c
#define REFERENCES const fmi3ValueReference vr[], size_t n
fmi3Instance fmi3InstantiateCoSimulation(fmi3String name, fmi3String token, fmi3String resources, fmi3Boolean visible,
    fmi3Boolean logging, fmi3Boolean events, fmi3Boolean early, const fmi3ValueReference vr[], size_t n,
    fmi3InstanceEnvironment environment, fmi3LogMessageCallback log, fmi3IntermediateUpdateCallback update) {
#ifdef REFUSES
    log(environment, fmi3Error, "error", "no licence for this machine");
    return 0;
#endif
    return calloc(1, sizeof(Model));
}
void fmi3FreeInstance(C) { free(c); }
fmi3Status fmi3EnterInitializationMode(C, fmi3Boolean t, fmi3Float64 tolerance, fmi3Float64 start, fmi3Boolean s,
    fmi3Float64 stop) { return start == 0 ? fmi3OK : fmi3Error; }
fmi3Status fmi3ExitInitializationMode(C) { return fmi3OK; }
fmi3Status fmi3SetFloat64(C, REFERENCES, const fmi3Float64 v[], size_t k) {
    if (vr[0] == 10) for (size_t i = 0; i < k; i++) ((Model *)c)->in[i] = v[i];
    else for (size_t i = 0; i < n; i++) ((Model *)c)->in[vr[i]] = v[i];
    return fmi3OK;
}
fmi3Status fmi3SetInt32(C, REFERENCES, const fmi3Int32 v[], size_t k) { ((Model *)c)->seed = v[0]; return fmi3OK; }
fmi3Status fmi3GetFloat64(C, REFERENCES, fmi3Float64 v[], size_t k) {
    if (vr[0] == 11) for (size_t i = 0; i < k; i++) v[i] = ((Model *)c)->out[i];
    else for (size_t i = 0; i < n; i++) v[i] = ((Model *)c)->out[vr[i] - 4];
    return fmi3OK;
}
fmi3Status fmi3DoStep(C, fmi3Float64 time, fmi3Float64 size, fmi3Boolean p, fmi3Boolean *event, fmi3Boolean *end,
    fmi3Boolean *early, fmi3Float64 *last) {
#ifdef ENDS
    *end = 1;
#endif
    return step(c, time, size);
}
"""
SOURCES = {"2": COMMON + FMI2, "3": COMMON + FMI3}
HEAD = {
    "2": '<fmiModelDescription fmiVersion="2.0" modelName="M" guid="g">',
    "3": '<fmiModelDescription fmiVersion="3.0" modelName="M" instantiationToken="g">',
}
PLATFORMS = {"2": "linux64", "3": "x86_64-linux"}
EXPERIMENT = '<DefaultExperiment stepSize="0.1"/>'
COSIMULATION = '<CoSimulation modelIdentifier="m"/>'
INPUTS, OUTPUTS = [f"x{index}" for index in range(4)], [f"y{index}" for index in range(4)]


def fmu_site() -> str:
    return site(catalogue.runtime("fmu").formats["fmu"].environment)


def library(folder: Path, fmi: str, **macros: str) -> bytes:
    """Compile the controller; functions that it does not define answer with an error."""
    headers = Path(fmu_site()) / "fmpy/c-code"
    declared = set(re.findall(rf"\bfmi{fmi}\w+(?=;)", (headers / f"fmi{fmi}Functions.h").read_text()))
    defined = set(re.findall(rf"\bfmi{fmi}\w+(?=\()", SOURCES[fmi]))
    stubs = "".join(f"int {name}(void) {{ return 3; }}\n" for name in sorted(declared - defined))
    (folder / "m.c").write_text(SOURCES[fmi])
    (folder / "stubs.c").write_text(stubs)
    output = folder / "m.so"
    command = ["cc", "-shared", "-fPIC", f"-I{headers}", *(f"-D{name}={text}" for name, text in macros.items())]
    subprocess.run([*command, "-o", str(output), str(folder / "m.c"), str(folder / "stubs.c")], check=True)
    return output.read_bytes()


def described(
    fmi: str,
    inputs: list[str] = INPUTS,
    outputs: list[str] = OUTPUTS,
    *,
    experiment: str = EXPERIMENT,
    kind: str = COSIMULATION,
    more: str = "",
) -> bytes:
    """Return a model description. Of FMI 3.0, a single input and output are the arrays."""
    array = fmi == "3" and len(inputs) == 1
    rows = [("input", 10 if array else index, name) for index, name in enumerate(inputs)]
    rows += [("output", 11 if array else 4 + index, name) for index, name in enumerate(outputs)]
    variables, structure = "", ""
    for index, (cause, reference, name) in enumerate(rows):
        start = "" if cause == "output" else ' start="0 0 0 0"' if array else ' start="0"'
        attributes = f'name="{name}" valueReference="{reference}" causality="{cause}"'
        if fmi == "2":
            variables += f"<ScalarVariable {attributes}><Real{start}/></ScalarVariable>"
        else:
            dimension = '<Dimension start="4"/>' if array else ""
            variables += f"<Float64 {attributes}{start}>{dimension}</Float64>"
        if cause == "output":
            structure += f'<Unknown index="{index + 1}"/>' if fmi == "2" else f'<Output valueReference="{reference}"/>'
    if fmi == "2":
        structure = f"<Outputs>{structure}</Outputs>" if structure else ""
    else:
        variables += '<Float64 name="time" valueReference="99" causality="independent"/>'
    body = f"<ModelVariables>{variables}{more}</ModelVariables><ModelStructure>{structure}</ModelStructure>"
    text = f'<?xml version="1.0" encoding="UTF-8"?>{HEAD[fmi]}{kind}{experiment}{body}</fmiModelDescription>'
    return text.encode()


def fmu(folder: Path, fmi: str, description: bytes | None = None, **macros: str) -> bytes:
    """Return an FMU of the controller."""
    binary = f"binaries/{PLATFORMS[fmi]}/m.so"
    return zipped({"modelDescription.xml": description or described(fmi), binary: library(folder, fmi, **macros)})


def spec() -> Any:
    return worker_spec(format="fmu", isolation="scenario", model_server_site=fmu_site(), sandbox=best_level())


def play(**changes: Any) -> dict[str, Any]:
    return play_of(isolation="scenario", **changes)


def results_of(model: bytes, *parts: tuple[int, int], **changes: Any) -> dict[int, dict[str, Any]]:
    with evaluator_pair(spec(), model, play(**changes)) as pair:
        return {result["task"]: result | {"timing": None} for part in parts for result in pair.run(*part)}


def refusal(model: bytes, **changes: Any) -> str:
    return refusal_of(spec(), model, play(**changes))


def expected() -> dict[int, dict[str, Any]]:
    with evaluator_pair(worker_spec(isolation="scenario", sandbox=best_level()), PYTHON, play()) as pair:
        return {result["task"]: result | {"timing": None} for result in pair.run(0, 4)}


WORDS, ANSWERS = [f"word_{index}" for index in range(4)], [f"answer_{index}" for index in range(4)]


@pytest.mark.parametrize(
    ("fmi", "inputs", "outputs"),
    [("2", INPUTS, OUTPUTS), ("3", INPUTS, OUTPUTS), ("2", WORDS, ANSWERS), ("3", ["x"], ["y"])],
    ids=["2", "3", "by name", "arrays"],
)
def test_an_fmu_has_the_results_of_the_same_policy_in_python(
    fmi: str, inputs: list[str], outputs: list[str], tmp_path: Path
) -> None:
    assert results_of(fmu(tmp_path, fmi, described(fmi, inputs, outputs)), (0, 4)) == expected()


def test_variables_are_paired_by_name_if_every_entry_has_one_of_its_name(tmp_path: Path) -> None:
    swapped = [WORDS[1], WORDS[0], *WORDS[2:]], [ANSWERS[1], ANSWERS[0], *ANSWERS[2:]]
    assert results_of(fmu(tmp_path, "2", described("2", *swapped)), (0, 4)) == expected()
    other_names = [INPUTS[1], INPUTS[0], *INPUTS[2:]], OUTPUTS
    assert results_of(fmu(tmp_path, "2", described("2", *other_names)), (0, 4)) == expected(), (
        "in the order of the file"
    )


#: What is left of other scenarios and steps: in the library, and in the instance; and the scenario's seed.
REMEMBERS = "(1 + calls + 10 * m->steps + 100 * (m->seed % 7))"
SEED = {
    "2": '<ScalarVariable name="seed" valueReference="8" causality="parameter" variability="fixed">'
    '<Integer start="0"/></ScalarVariable>',
    "3": '<Int32 name="seed" valueReference="8" causality="parameter" variability="fixed" start="0"/>',
}


@pytest.mark.parametrize("fmi", ["2", "3"])
@pytest.mark.parametrize("batch", [1, 3])
def test_nothing_is_left_of_a_scenario_in_any_order(fmi: str, batch: int, tmp_path: Path) -> None:
    model = fmu(tmp_path, fmi, described(fmi, more=SEED[fmi]), OFFSET=REMEMBERS)
    changes: dict[str, Any] = {"params": {"batch": batch}} if batch > 1 else {}
    results = results_of(model, (0, 6), **changes)
    assert {result["status"] for result in results.values()} == {"ok"}
    assert len({str(result["metrics"]) for result in results.values()}) > 1
    assert results == results_of(model, (3, 6), (0, 3), **changes)


KIND = '<ModelExchange modelIdentifier="m"/>'
ONCE = '<CoSimulation modelIdentifier="m" canBeInstantiatedOnlyOncePerProcess="true"/>'
STRING = '<ScalarVariable name="word_0" valueReference="9" causality="input" variability="discrete">'
STRING += '<String start=""/></ScalarVariable>'


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": KIND}, "the FMU is for model exchange only; export it for co-simulation"),
        (
            {"inputs": INPUTS[:3]},
            "has 3 numbers as inputs (x0, x1, x2); the dataset has 4 (word_0, word_1, word_2, word_3)",
        ),
        ({"outputs": []}, "the FMU has 0 numbers as outputs; the dataset has 4 (answer_0"),
        (
            {"inputs": WORDS[1:], "more": STRING},
            "the FMU's input word_0 is of the type String, which is not a type of num",
        ),
        ({"experiment": ""}, "neither the dataset nor the FMU has a step size: add a `stepSize`"),
        ({"more": "<ScalarVariable>"}, "does not read the FMU's modelDescription.xml: "),
    ],
    ids=["kind", "inputs", "outputs", "type", "step", "xml"],
)
def test_an_fmu_that_does_not_fit_is_refused_with_the_reason(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    assert reason in refusal(fmu(tmp_path, "2", described("2", **changes)))


@pytest.mark.parametrize("fmi", ["2", "3"])
def test_an_fmu_that_refuses_or_has_no_library_for_this_machine_is_refused_with_the_reason(
    fmi: str, tmp_path: Path
) -> None:
    assert "the instantiation of the FMU failed: Failed to instantiate" in (
        reason := refusal(fmu(tmp_path, fmi, REFUSES="1"))
    )
    assert reason.endswith("no licence for this machine")
    elsewhere = zipped({"modelDescription.xml": described(fmi), "binaries/win64/m.dll": b"MZ"})
    assert f"the FMU has no library for {PLATFORMS[fmi]}, only for win64; export it for Linux" in refusal(elsewhere)
    damaged = {"modelDescription.xml": described(fmi), f"binaries/{PLATFORMS[fmi]}/m.so": b"\x7fELF"}
    assert "the FMU's library cannot be loaded: Failed to load shared library" in refusal(zipped(damaged))
    once = fmu(tmp_path, "2", described("2", kind=ONCE))
    assert "can have only one instance in a process; run it with a batch of 1" in refusal(once, params={"batch": 3})


@pytest.mark.parametrize(
    ("fmi", "macros", "text"),
    [
        ("2", {"STATUS": "3"}, "a step of the FMU failed: fmi2DoStep failed with status 3"),
        ("3", {"STATUS": "2"}, "a step of the FMU failed: fmi3DoStep failed with status 2"),
        ("3", {"ENDS": "1"}, "the FMU has ended its simulation at 0.1 s"),
    ],
)
def test_a_fault_of_an_fmu_is_the_result_of_its_task(
    fmi: str, macros: dict[str, str], text: str, tmp_path: Path
) -> None:
    with evaluator_pair(spec(), fmu(tmp_path, fmi, **macros), play()) as pair:
        results = pair.run(0, 2)
    assert [result["status"] for result in results] == ["failed"] * 2
    assert text in results[0]["error"]


#: docs/exporting.md has it as an example.
PYTHONFMU = """
from pythonfmu import Fmi2Causality, Fmi2Slave, Real


class Policy(Fmi2Slave):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        for name in ("position", "velocity", "angle", "angular_velocity"):
            setattr(self, name, 0.0)
            self.register_variable(Real(name, causality=Fmi2Causality.input))
        self.push = 0.0
        self.register_variable(Real("push", causality=Fmi2Causality.output))

    def do_step(self, time, step):
        drift = 0.02 * self.position + 0.05 * self.velocity
        self.push = 1.0 if self.angle + 0.5 * self.angular_velocity + drift > 0 else 0.0
        return True
"""


def of_pythonfmu(folder: Path) -> bytes:
    """Return an FMU of the policy above for cartpole."""
    (folder / "policy.py").write_text(PYTHONFMU)
    command = [uv.find_uv_bin(), "tool", "run", "--from", "pythonfmu==0.7.0", "pythonfmu", "build", "-f", "policy.py"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "Policy.fmu").read_bytes()


def test_an_fmu_of_pythonfmu_has_the_results_of_the_baseline_in_python(tmp_path: Path) -> None:
    model = of_pythonfmu(tmp_path)
    changes = {"format": "fmu", "model_server_site": fmu_site()}
    with evaluator_pair(spec_of("cartpole", **changes), model, CARTPOLE) as pair:
        results = [result | {"timing": None} for result in pair.run(0, 6)]
    with evaluator_pair(spec_of("cartpole"), BASELINES["cartpole"].read_bytes(), CARTPOLE) as pair:
        assert results == [result | {"timing": None} for result in pair.run(0, 6)]


CARTPOLE = play_of("cartpole", isolation="scenario")
