//! The `haul` binary. Everything is in the library, so that tests can reach it.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    haul::main()
}
