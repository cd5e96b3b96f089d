//! Engines: what can be said of them, and how they stand beside other upstreams.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use super::{UPSTREAM, complains, good};
use crate::config::{Config, EngineConfig, KvType};

const ENGINE: &str = "[[engines]]\nname = \"m\"\nfile = \"/m.gguf\"\n";

fn upstream_of(config: &Config, model: &str) -> Option<String> {
    config.resolve(model, None).map(|target| config.upstreams[target.upstream].name.clone())
}

#[test]
fn what_is_said_is_kept_and_what_is_not_is_nobodys_guess() {
    let config = good(ENGINE);
    assert_eq!(config.engines, [EngineConfig::new("m", "/m.gguf")]);
    let config = good(&format!(
        "{ENGINE}context_tokens = 4096\nthreads = 3\ngpu_layers = 0\nkv_type = \"q8_0\"\nkv_host_bytes = 7\n\
         lookup_tokens_max = 0\nitl_target_ms = \"off\"\nkv_dir = \"/kv\"\nkv_dir_bytes_max = 8\nrequests_max = 4\nqueue_max = 9\nqueue_seconds_max = 5\nisolate = true\n\
         idle_unload_seconds = 60\ndraft = \"/d.gguf\"\n"
    ));
    let said = EngineConfig {
        context_tokens: Some(4096),
        threads: NonZeroU32::new(3),
        gpu_layers: Some(0),
        kv_type: KvType::Q8_0,
        kv_host_bytes: Some(7),
        lookup_tokens_max: Some(0),
        draft: Some("/d.gguf".into()),
        itl_target: Some(None),
        kv_dir: Some("/kv".into()),
        kv_dir_bytes_max: Some(8),
        requests_max: Some(4),
        queue_max: Some(9),
        queue_time_max: Some(Duration::from_secs(5)),
        isolate: true,
        idle_unload: Some(Duration::from_secs(60)),
        ..EngineConfig::new("m", Path::new("/m.gguf"))
    };
    assert_eq!(config.engines, [said]);
}

#[test]
fn every_mistake_is_named() {
    complains(
        "[[engines]]\nname = \"m*\"\nfile = \"\"\ncontext_tokens = 1\nkv_type = \"f32\"\nthread = 2\n\
         [[engines]]\nitl_target_ms = 0\n",
        &[
            "f.toml:2:8: engines[0].name: `m*` has a `*` in it, and this is one model; hint: other names for it go into [[models]]",
            "f.toml:3:8: engines[0].file: names no file; hint: write the path of a GGUF file",
            "f.toml:4:18: engines[0].context_tokens: must be a whole number from 256 to 16777216, not 1",
            "f.toml:5:11: engines[0].kv_type: `f32` is no way to keep keys and values; hint: one of f16, q8_0, q4_0",
            "f.toml:6:1: engines[0].thread: unknown key; hint: did you mean `threads`?",
            "f.toml:7:1: engines[1]: `name` is missing; hint: the model name that callers send",
            "f.toml:7:1: engines[1]: `file` is missing; hint: a GGUF file, the name of a pulled model, or an address",
            "f.toml:8:17: engines[1].itl_target_ms: must be milliseconds from 1 to 86400000 or \"off\", not 0",
        ],
    );
}

#[test]
fn an_engine_answers_for_its_name_and_others_for_the_rest() {
    let alone = good(ENGINE);
    assert_eq!((upstream_of(&alone, "m"), upstream_of(&alone, "other")), (Some("m".to_owned()), None));
    let beside = good(&format!("{UPSTREAM}{ENGINE}"));
    assert_eq!(upstream_of(&beside, "m").as_deref(), Some("m"));
    assert_eq!(upstream_of(&beside, "other").as_deref(), Some("u"));
    let alias = "[[models]]\nname = \"fast\"\nupstream = \"m\"\nupstream_model = \"m\"\n";
    let named = good(&format!("{UPSTREAM}{ENGINE}{alias}"));
    assert_eq!(upstream_of(&named, "fast").as_deref(), Some("m"));
    assert_eq!(upstream_of(&named, "other"), None);
}

#[test]
fn a_name_means_one_who_answers() {
    complains(
        &format!("{UPSTREAM}{ENGINE}{ENGINE}[[engines]]\nname = \"u\"\nfile = \"f\"\n"),
        &[
            "f.toml:9:8: engines[1].name: has the same name as engines[0].name; hint: each must be different",
            "f.toml:12:8: engines[2].name: has the same name as upstreams[0].name; hint: each must be different",
        ],
    );
    complains(
        &format!("{ENGINE}[[models]]\nname = \"m\"\n"),
        &["f.toml:5:8: models[0].name: `m` has a rule already: engines[0].name; hint: keep one of the two"],
    );
    let refused = good(ENGINE).with_engines(vec![EngineConfig::new("m", "f")]).unwrap_err();
    assert_eq!(refused, "two who answer are called `m`; rename one of them");
}
