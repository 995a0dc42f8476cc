//! The guardian as a program of its own, which `haul` carries in itself: see `docs/decisions/0007-a-small-guardian.md`.

fn main() -> std::process::ExitCode {
    haul_guard::main()
}
