/* A model as a shared library: four functions; docs/exporting.md#shared-library has examples in C and Rust.
 * Each scenario has a process of its own, which ends with it: nothing needs to be freed, and nothing remains.
 * A function is never called by two threads at once. */
#ifndef WINDTUNNEL_MODEL_H
#define WINDTUNNEL_MODEL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Create a model. The description is JSON: {"version": 1, "folder": path of the library's own folder, "params": {...},
 * "observation": space, "action": space}, space = {"dtype", "shape", "names", "units", "low", "high"}; a missing bound is
 * null. The text is only valid during the call. NULL: it cannot be created. */
void *windtunnel_create(const char *description);
/* A scenario begins: forget the last one, and seed every random generator. */
void windtunnel_reset(void *model, uint64_t seed);
/* Compute an action of m numbers from an observation of n numbers, both in C order. 0: it is computed. */
int windtunnel_act(void *model, const double *observation, size_t n, double *action, size_t m);
/* Optional: why the last call failed; model is NULL after a failed windtunnel_create. NULL: no text. */
const char *windtunnel_error(void *model);
#ifdef __cplusplus
}
#endif
#endif
