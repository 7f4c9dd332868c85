//! Builds libtslab_prefixed.a, whose names all begin with tslab_, from the C sources that this crate lies beside.
//! TSLAB_LIB_DIR names a folder that has it already.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn must(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error} (CMake and a C compiler are needed)"));
    assert!(status.success(), "{command:?}: {status}");
}

fn main() {
    println!("cargo:rerun-if-env-changed=TSLAB_LIB_DIR");
    let folder = env::var_os("TSLAB_LIB_DIR").map(PathBuf::from).unwrap_or_else(build);
    assert!(
        folder.join("libtslab_prefixed.a").exists(),
        "no libtslab_prefixed.a in {}",
        folder.display()
    );
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=static=tslab_prefixed");
}

fn build() -> PathBuf {
    let sources = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    let sources = fs::canonicalize(&sources).expect("the repository around this crate");
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap()).join("cmake");
    for part in ["src", "include", "cmake", "CMakeLists.txt"] {
        println!("cargo:rerun-if-changed={}", sources.join(part).display());
    }
    let options = ["-DTSLAB_BUILD=release", "-DBUILD_TESTING=OFF"];
    must(
        Command::new("cmake")
            .arg("-S")
            .arg(&sources)
            .arg("-B")
            .arg(&folder)
            .args(options),
    );
    let jobs = env::var("NUM_JOBS").unwrap_or_else(|_| "2".into());
    must(
        Command::new("cmake")
            .arg("--build")
            .arg(&folder)
            .args(["--target", "tslab_prefixed", "--parallel", &jobs]),
    );
    folder
}
