//! Link arguments of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Threads, thread-local destructors and fork handlers stay behind after dlclose(3): never unload.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Before 1.0 each minor version is an ABI of its own, as cargo-c has it.
    let number = |name: &str| std::env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
    let (major, minor) = (number("MAJOR"), number("MINOR"));
    let abi = if major == "0" { format!("0.{minor}") } else { major };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpindown.so.{abi}");
}
