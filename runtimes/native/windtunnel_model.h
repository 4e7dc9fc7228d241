/* A model as a shared library or as a WebAssembly module: four functions; docs/exporting.md has examples in C and Rust.
 * Each scenario has a process or an instance of its own, which ends with it: nothing needs to be freed or remains.
 * A function is never called by two threads at once. */
#ifndef WINDTUNNEL_MODEL_H
#define WINDTUNNEL_MODEL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __wasm__
#define WINDTUNNEL_EXPORT(name) __attribute__((export_name(#name)))
#else
#define WINDTUNNEL_EXPORT(name)
#endif
#ifdef __cplusplus
extern "C" {
#endif
/* Create a model. The description is JSON: {"version": 1, "folder": path of the library's own folder or null, "params": {...},
 * "observation": space, "action": space}, space = {"dtype", "shape", "names", "units", "low", "high"}; a missing bound is
 * null. The text is only valid during the call. NULL: it cannot be created. */
WINDTUNNEL_EXPORT(windtunnel_create) void *windtunnel_create(const char *description);
/* A scenario begins: forget the last one, and seed every random generator. */
WINDTUNNEL_EXPORT(windtunnel_reset) void windtunnel_reset(void *model, uint64_t seed);
/* Compute an action of m numbers from an observation of n numbers, both in C order. 0: it is computed. */
WINDTUNNEL_EXPORT(windtunnel_act)
int windtunnel_act(void *model, const double *observation, size_t n, double *action, size_t m);
/* Optional: why the last call failed; model is NULL after a failed windtunnel_create. NULL: no text. */
WINDTUNNEL_EXPORT(windtunnel_error) const char *windtunnel_error(void *model);
#ifdef __wasm__
/* Optional, in WebAssembly: room for bytes that the host writes, never used for anything else. Without it, `malloc` is
 * called if it is exported; without both, the host adds pages to the memory. */
WINDTUNNEL_EXPORT(windtunnel_allocate) void *windtunnel_allocate(size_t bytes);
#endif
#ifdef __cplusplus
}
#endif
#endif
