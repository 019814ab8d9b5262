//! The limit: the engine alone, run again and again on the same inputs. It lends tensors to the library and copies the
//! outputs out, as it must for any caller.

use crate::clock::Clock;
use crate::engine::Engine;
use crate::tensor::Tensor;
use crate::units::Seconds;

/// Runs a second, of all these engines together, each on a thread of its own.
pub fn rate(
    engines: &mut [Box<dyn Engine>],
    inputs: &[Tensor],
    wanted: &[usize],
    window: Seconds,
    clock: Clock,
) -> Result<f64, String> {
    std::thread::scope(|scope| {
        let one = |engine: &mut dyn Engine| repeat(engine, inputs, wanted, window, clock);
        let threads = engines.iter_mut();
        let threads: Vec<_> = threads
            .map(|engine| scope.spawn(move || one(engine.as_mut())))
            .collect();
        let rates = threads.into_iter().map(|thread| {
            let crashed = |_| Err("the engine panicked".to_owned());
            thread.join().unwrap_or_else(crashed)
        });
        rates.sum()
    })
}

fn repeat(
    engine: &mut dyn Engine,
    inputs: &[Tensor],
    wanted: &[usize],
    window: Seconds,
    clock: Clock,
) -> Result<f64, String> {
    let mut run = || engine.run(inputs, wanted).map_err(|fault| fault.message);
    run()?;
    let begin = clock.now();
    let mut runs = 0.0;
    loop {
        run()?;
        runs += 1.0;
        let took = clock.now() - begin;
        if took >= window {
            return Ok(runs / took.0);
        }
    }
}
