//! Whether this processor can run the kernels as they were built.
//!
//! The kernels are built for one set of instructions (`.cargo/config.toml`); the Rust around them runs
//! anywhere. On a machine that lacks some of the set the first of them would end the process.
//!
//! Invariant: asked before the first call of the kernels.

/// Whether an environment variable of the build switched something on.
#[cfg(target_arch = "x86_64")]
const fn on(switch: Option<&str>) -> bool {
    matches!(switch, Some(value) if matches!(value.as_bytes(), b"ON"))
}

/// The first extension that the kernels were built for and this processor lacks, as their build calls it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn missing() -> Option<&'static str> {
    let wanted = [
        (on(option_env!("GGML_SSE42")), is_x86_feature_detected!("sse4.2"), "SSE42"),
        (on(option_env!("GGML_AVX")), is_x86_feature_detected!("avx"), "AVX"),
        (on(option_env!("GGML_AVX2")), is_x86_feature_detected!("avx2"), "AVX2"),
        (on(option_env!("GGML_BMI2")), is_x86_feature_detected!("bmi2"), "BMI2"),
        (on(option_env!("GGML_F16C")), is_x86_feature_detected!("f16c"), "F16C"),
        (on(option_env!("GGML_FMA")), is_x86_feature_detected!("fma"), "FMA"),
    ];
    wanted.into_iter().find(|(built_for, there, _)| *built_for && !there).map(|(.., name)| name)
}

/// Elsewhere the kernels are built for what every processor of the kind has.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const fn missing() -> Option<&'static str> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    #[test]
    fn the_build_says_what_it_was_for() {
        // Without the workspace's settings the kernels would be several times slower.
        assert_eq!(option_env!("GGML_AVX2"), Some("ON"));
        assert_eq!(super::missing(), None, "these tests need what the kernels were built for");
    }
}
