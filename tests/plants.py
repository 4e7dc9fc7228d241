"""Plants for tests: a heated room in C, by FMI 2.0 and 3.0, whose faults are chosen by macros, as datasets of users."""

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runtimes import catalogue, environments
from tests.archives import zipped
from tests.cached import ENVIRONMENTS

#: Numbers by their references: of type double, int and bool. By FMI 3.0, `trend` is an array of two.
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <unistd.h>
enum { HEATING, T, POWER, INSULATION, OUTSIDE, TREND, TREND2, REALS };
enum { MODE, SEED, COUNT, INTS };
enum { WINDOW, ALARM, BOOLS };
typedef struct { double r[REALS]; int i[INTS]; int b[BOOLS]; double *noise; } Room;
static int calls;
#ifndef FAULT
#define FAULT
#endif
#ifndef REMEMBERED
#define REMEMBERED 0
#endif
static Room *make(void) {
    Room *m = calloc(1, sizeof(Room));
    m->r[T] = 15; m->r[INSULATION] = 1; m->r[OUTSIDE] = 5; m->i[MODE] = 1;
    m->noise = malloc(4096);
    return m;
}
static int step(Room *m, double time, double size, int *ended) {
    (void)time; (void)ended; calls++; m->i[COUNT]++;
    double before = m->r[T], losses = (before - m->r[OUTSIDE]) * 200 / m->r[INSULATION] * (m->b[WINDOW] ? 3 : 1);
    m->r[POWER] = 5000 * m->r[HEATING] * m->i[MODE];
    m->r[T] += (m->r[POWER] - losses) * size / 1e5 + 1e-3 * (m->i[SEED] % 7) + (REMEMBERED);
    m->r[TREND2] = m->r[TREND]; m->r[TREND] = m->r[T] - before;
    m->b[ALARM] = m->r[T] > 30;
    FAULT;
    return 0;
}
"""
FMI2 = """
#include "fmi2Functions.h"
#define C fmi2Component c
#define R const fmi2ValueReference vr[], size_t n
#define ALL for (size_t k = 0; k < n; k++)
fmi2Component fmi2Instantiate(fmi2String name, fmi2Type type, fmi2String guid, fmi2String resources,
    const fmi2CallbackFunctions *f, fmi2Boolean visible, fmi2Boolean logging) { return make(); }
void fmi2FreeInstance(C) { free(c); }
fmi2Status fmi2SetupExperiment(C, fmi2Boolean t, fmi2Real tolerance, fmi2Real start, fmi2Boolean s, fmi2Real stop) {
    return fmi2OK; }
fmi2Status fmi2EnterInitializationMode(C) { return fmi2OK; }
fmi2Status fmi2ExitInitializationMode(C) { return fmi2OK; }
fmi2Status fmi2SetReal(C, R, const fmi2Real v[]) { ALL ((Room *)c)->r[vr[k]] = v[k]; return fmi2OK; }
fmi2Status fmi2SetInteger(C, R, const fmi2Integer v[]) { ALL ((Room *)c)->i[vr[k]] = v[k]; return fmi2OK; }
fmi2Status fmi2SetBoolean(C, R, const fmi2Boolean v[]) { ALL ((Room *)c)->b[vr[k]] = v[k]; return fmi2OK; }
fmi2Status fmi2GetReal(C, R, fmi2Real v[]) { ALL v[k] = ((Room *)c)->r[vr[k]]; return fmi2OK; }
fmi2Status fmi2GetInteger(C, R, fmi2Integer v[]) { ALL v[k] = ((Room *)c)->i[vr[k]]; return fmi2OK; }
fmi2Status fmi2GetBoolean(C, R, fmi2Boolean v[]) { ALL v[k] = ((Room *)c)->b[vr[k]]; return fmi2OK; }
static int over;
fmi2Status fmi2DoStep(C, fmi2Real time, fmi2Real size, fmi2Boolean p) { return step(c, time, size, &over); }
fmi2Status fmi2GetBooleanStatus(C, fmi2StatusKind kind, fmi2Boolean *v) { *v = over; return fmi2OK; }
"""
FMI3 = """
#include "fmi3Functions.h"
#define C fmi3Instance c
#define R const fmi3ValueReference vr[], size_t n
fmi3Instance fmi3InstantiateCoSimulation(fmi3String name, fmi3String token, fmi3String resources, fmi3Boolean visible,
    fmi3Boolean logging, fmi3Boolean events, fmi3Boolean early, const fmi3ValueReference vr[], size_t n,
    fmi3InstanceEnvironment environment, fmi3LogMessageCallback log, fmi3IntermediateUpdateCallback update) {
    return make(); }
void fmi3FreeInstance(C) { free(c); }
fmi3Status fmi3EnterInitializationMode(C, fmi3Boolean t, fmi3Float64 tolerance, fmi3Float64 start, fmi3Boolean s,
    fmi3Float64 stop) { return fmi3OK; }
fmi3Status fmi3ExitInitializationMode(C) { return fmi3OK; }
#define SIZE(k) (vr[k] == TREND ? 2 : 1)
#define ALL(what) size_t at = 0; for (size_t k = 0; k < n; k++) for (int j = 0; j < SIZE(k); j++, at++) what; \\
    return fmi3OK
fmi3Status fmi3SetFloat64(C, R, const fmi3Float64 v[], size_t m) { ALL(((Room *)c)->r[vr[k] + j] = v[at]); }
fmi3Status fmi3GetFloat64(C, R, fmi3Float64 v[], size_t m) { ALL(v[at] = ((Room *)c)->r[vr[k] + j]); }
#undef SIZE
#define SIZE(k) 1
fmi3Status fmi3SetInt32(C, R, const fmi3Int32 v[], size_t m) { ALL(((Room *)c)->i[vr[k] - 100] = v[at]); }
fmi3Status fmi3GetInt32(C, R, fmi3Int32 v[], size_t m) { ALL(v[at] = ((Room *)c)->i[vr[k] - 100]); }
fmi3Status fmi3SetInt64(C, R, const fmi3Int64 v[], size_t m) { ALL(((Room *)c)->i[vr[k] - 100] = v[at]); }
fmi3Status fmi3SetBoolean(C, R, const fmi3Boolean v[], size_t m) { ALL(((Room *)c)->b[vr[k] - 200] = v[at]); }
fmi3Status fmi3GetBoolean(C, R, fmi3Boolean v[], size_t m) { ALL(v[at] = ((Room *)c)->b[vr[k] - 200]); }
fmi3Status fmi3DoStep(C, fmi3Float64 time, fmi3Float64 size, fmi3Boolean p, fmi3Boolean *event, fmi3Boolean *end,
    fmi3Boolean *early, fmi3Float64 *last) {
    int over = 0, code = step(c, time, size, &over);
    *end = over;
    return code;
}
"""
SOURCES = {"2": SOURCE + FMI2, "3": SOURCE + FMI3}
LIBRARIES = {"2": "binaries/linux64/room.so", "3": "binaries/x86_64-linux/room.so"}
_VARIABLES2 = """
<ScalarVariable name="heating" valueReference="0" causality="input">
  <Real declaredType="Share" start="0"/></ScalarVariable>
<ScalarVariable name="mode" valueReference="0" causality="input" variability="discrete">
  <Enumeration declaredType="Mode" start="1"/></ScalarVariable>
<ScalarVariable name="window" valueReference="0" causality="input" variability="discrete">
  <Boolean start="false"/></ScalarVariable>
<ScalarVariable name="outside" valueReference="4" causality="input"><Real unit="degC" start="5"/></ScalarVariable>
<ScalarVariable name="T" valueReference="1" causality="output" initial="exact">
  <Real unit="degC" min="-50" max="200" start="15"/></ScalarVariable>
<ScalarVariable name="power" valueReference="2" causality="local"><Real unit="W"/></ScalarVariable>
<ScalarVariable name="insulation" valueReference="3" causality="parameter" variability="fixed">
  <Real start="1" min="0.1" max="10"/></ScalarVariable>
<ScalarVariable name="trend[1]" valueReference="5" causality="output"><Real unit="K"/></ScalarVariable>
<ScalarVariable name="trend[2]" valueReference="6" causality="output"><Real unit="K"/></ScalarVariable>
<ScalarVariable name="seed" valueReference="1" causality="parameter" variability="fixed">
  <Integer start="0"/></ScalarVariable>
<ScalarVariable name="count" valueReference="2" causality="output" variability="discrete"><Integer/></ScalarVariable>
<ScalarVariable name="alarm" valueReference="1" causality="output" variability="discrete"><Boolean/></ScalarVariable>
<ScalarVariable name="label" valueReference="7" causality="output" variability="discrete"><String/></ScalarVariable>
"""
_VARIABLES3 = """
<Float64 name="heating" valueReference="0" causality="input" declaredType="Share" start="0"/>
<Enumeration name="mode" valueReference="100" causality="input" declaredType="Mode" start="1"/>
<Boolean name="window" valueReference="200" causality="input" start="false"/>
<Float64 name="outside" valueReference="4" causality="input" unit="degC" start="5"/>
<Float64 name="T" valueReference="1" causality="output" initial="exact" unit="degC" min="-50" max="200" start="15"/>
<Float64 name="power" valueReference="2" unit="W"/>
<Float64 name="insulation" valueReference="3" causality="parameter" variability="fixed" start="1" min="0.1" max="10"/>
<UInt64 name="rows" valueReference="300" causality="structuralParameter" variability="fixed" start="2"/>
<Float64 name="trend" valueReference="5" causality="output" unit="K"><Dimension valueReference="300"/></Float64>
<Int32 name="seed" valueReference="101" causality="parameter" variability="fixed" start="0"/>
<Int32 name="count" valueReference="102" causality="output"/>
<Boolean name="alarm" valueReference="201" causality="output"/>
<String name="label" valueReference="400" causality="output"><Start value=""/></String>
<Float64 name="time" valueReference="99" causality="independent"/>
"""
_ITEMS = '<Item name="off" value="0"/><Item name="on" value="1"/><Item name="boost" value="2"/>'
_TYPES2 = '<SimpleType name="Share"><Real min="0" max="1"/></SimpleType>'
_TYPES2 += f'<SimpleType name="Mode"><Enumeration>{_ITEMS}</Enumeration></SimpleType>'
_TYPES3 = f'<Float64Type name="Share" min="0" max="1"/><EnumerationType name="Mode">{_ITEMS}</EnumerationType>'
#: Attributes of the root, types and variables by version of FMI.
PARTS = {
    "2": ('fmiVersion="2.0" guid="g"', _TYPES2, _VARIABLES2),
    "3": ('fmiVersion="3.0" instantiationToken="g"', _TYPES3, _VARIABLES3),
}
COSIMULATION, EXPERIMENT = '<CoSimulation modelIdentifier="room"/>', '<DefaultExperiment startTime="0" stepSize="60"/>'
#: What a dataset says of the room; it uses each part of the description once.
PLANT: Mapping[str, Any] = {
    "file": "room.fmu",
    "duration": 3600,
    "observation": ["T", "power", "count"],
    "action": ["heating", "mode", "window"],
    "parameters": ["insulation", "T", "outside"],
    "signals": {"error": {"constant": -21.0, "linear": {"T": 1.0}}},
    "reward": {"quadratic": {"error": -1.0, "heating": -0.1}},
    "metrics": [
        {"name": "discomfort", "of": "error", "by": "rms", "unit": "K", "better": "lower", "worst": 50},
        {"name": "energy", "of": "power", "by": "integral", "unit": "J", "better": "lower"},
    ],
    "ends": [{"of": "T", "above": 35.0, "outcome": "overheated"}],
    "finished": "kept",
}
#: Heats below 21 degrees.
THERMOSTAT = b"""
class Model:
    def act(self, observation):
        return [1.0 if observation[0] < 21 else 0.0, 1, 0]
"""
SCENARIOS = [
    {"name": "mild", "parameters": {"T": 18.0}},
    {"name": "cold", "parameters": {"outside": -15, "insulation": 2}},
]


def plant_site() -> str:
    """Return the packages of the plant simulator's environment."""
    return str(environments.prepare(catalogue.simulators()["plant"], ENVIRONMENTS, lambda message, part: None))


@cache
def library(fmi: str, macros: tuple[tuple[str, str], ...] = (), more: str = "") -> bytes:
    """Compile the room, after ``more``; functions that it does not define answer with an error."""
    headers = Path(plant_site()) / "fmpy/c-code"
    declared = set(re.findall(rf"\bfmi{fmi}\w+(?=;)", (headers / f"fmi{fmi}Functions.h").read_text()))
    defined = set(re.findall(rf"\bfmi{fmi}\w+(?=\()", SOURCES[fmi]))
    stubs = "".join(f"int {name}(void) {{ return 3; }}\n" for name in sorted(declared - defined))
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("m.c", more + SOURCES[fmi]), ("stubs.c", stubs)):
            (Path(folder) / name).write_text(text)
        command = ["cc", "-shared", "-fPIC", f"-I{headers}", *(f"-D{name}={text}" for name, text in macros)]
        subprocess.run([*command, "-o", "room.so", "m.c", "stubs.c", "-lm"], check=True, cwd=folder)
        return (Path(folder) / "room.so").read_bytes()


def description(fmi: str = "2", *, kinds: str = COSIMULATION, experiment: str = EXPERIMENT, more: str = "") -> bytes:
    """Return a model description of the room."""
    root, types, variables = PARTS[fmi]
    return (
        f'<fmiModelDescription modelName="Room" generationTool="cc" {root}>{kinds}'
        f"<TypeDefinitions>{types}</TypeDefinitions>{experiment}"
        f"<ModelVariables>{variables}{more}</ModelVariables><ModelStructure/></fmiModelDescription>"
    ).encode()


def room(fmi: str = "2", files: Mapping[str, bytes] | None = None, more: str = "", **macros: str) -> bytes:
    """Return the room as an FMU; ``files`` are added to it, or replace its own, and ``more`` precedes its code."""
    own = {"modelDescription.xml": description(fmi), LIBRARIES[fmi]: library(fmi, tuple(sorted(macros.items())), more)}
    return zipped({**own, **(files or {})})


def dataset_files(
    fmu: bytes, plant: Mapping[str, Any] = PLANT, scenarios: list[dict[str, Any]] | None = None, **members: Any
) -> dict[str, bytes]:
    """Return the files of a dataset with a plant."""
    described = {"extends": "fmu", "scenarios": "lines.ndjson", "title": "Room", "plant": plant, **members}
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in scenarios or SCENARIOS)
    return {"dataset.json": json.dumps(described).encode(), "lines.ndjson": lines, plant["file"]: fmu}
