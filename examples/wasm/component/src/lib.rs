//! The baseline of cartpole as a component: `cargo build --release --target wasm32-wasip2`, then send `policy.wasm`.

wit_bindgen::generate!({ path: "../../../runtimes/native/windtunnel-model.wit" });

struct Policy;

impl Guest for Policy {
    fn create(_description: String) -> Result<(), String> {
        Ok(()) // this model is for one dataset only
    }

    fn reset(_seed: u64) {} // it draws no random numbers

    fn act(observation: Vec<f64>) -> Result<Vec<f64>, String> {
        let [position, velocity, angle, angular] = observation[..] else {
            return Err(format!("the policy takes 4 numbers, not {}", observation.len()));
        };
        let sum = angle + 0.5 * angular + 0.02 * position + 0.05 * velocity;
        Ok(vec![if sum > 0.0 { 1.0 } else { 0.0 }])
    }
}

export!(Policy);
