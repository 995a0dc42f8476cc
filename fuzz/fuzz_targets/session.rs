//! Requests through a session: translation by whichever dialect they speak, the engine, the rendering of the answer.
//! Nothing panics, a refused command changes nothing, every invariant holds, also after loading.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haul::fuzzing::session(bytes));
