//! Builds the guardian as a small program of its own for `runner::program` to carry: see
//! `docs/decisions/0007-a-small-guardian.md`. In builds that are not for release `haul` is its own guardian.

use std::path::PathBuf;
use std::process::Command;

/// Everything the guardian is made of.
const SOURCES: [&str; 4] = ["../guard", "../client", "../../Cargo.toml", "../../Cargo.lock"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let variable = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let out = PathBuf::from(variable("OUT_DIR")?);
    let carried = out.join("haul-guard");
    SOURCES.iter().for_each(|source| put(&format!("rerun-if-changed={source}")));
    if variable("PROFILE")? != "release" {
        // Nothing to carry.
        std::fs::write(carried, [])?;
        return Ok(());
    }
    let (target, folder) = (variable("TARGET")?, out.join("target"));
    let status = Command::new(variable("CARGO")?)
        .args(["build", "--profile", "guard", "--package", "haul-guard", "--target", &target])
        .args(["--offline", "--target-dir"])
        .arg(&folder)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err("the guardian could not be built".into());
    }
    std::fs::copy(folder.join(target).join("guard/haul-guard"), carried)?;
    Ok(())
}

fn put(line: &str) {
    println!("cargo::{line}");
}
