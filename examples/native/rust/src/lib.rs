//! The baseline of cartpole in Rust: `cargo build --release`, then send `target/release/libpolicy.so`.

use std::ffi::{c_char, c_int, c_void};

struct Model {
    seed: u64, // of the scenario, for models that draw random numbers
}

#[no_mangle]
pub extern "C" fn windtunnel_create(_description: *const c_char) -> *mut c_void {
    Box::into_raw(Box::new(Model { seed: 0 })).cast()
}

/// # Safety
/// `model` is of `windtunnel_create`.
#[no_mangle]
pub unsafe extern "C" fn windtunnel_reset(model: *mut c_void, seed: u64) {
    (*model.cast::<Model>()).seed = seed;
}

/// # Safety
/// `observation` has `n` numbers and `action` has room for `m`.
#[no_mangle]
pub unsafe extern "C" fn windtunnel_act(
    _model: *mut c_void,
    observation: *const f64,
    n: usize,
    action: *mut f64,
    m: usize,
) -> c_int {
    let observation = std::slice::from_raw_parts(observation, n);
    let action = std::slice::from_raw_parts_mut(action, m);
    let ([position, velocity, angle, angular], [push]) = (observation, action) else {
        return 1;
    };
    let sum = angle + 0.5 * angular + 0.02 * position + 0.05 * velocity;
    *push = if sum > 0.0 { 1.0 } else { 0.0 };
    0
}
