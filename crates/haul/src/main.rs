//! The `haul` binary. Everything is in the library, so that tests can reach it.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    haul::main()
}
