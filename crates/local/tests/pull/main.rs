//! Fetching models over real sockets on this machine, from servers that do everything wrong.
//!
//! Invariant: whatever the server does, a name in the cache stands for a whole and right file.

mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use firsttoken_local::cache::Cache;
use firsttoken_local::pull::{self, Checksum, Error, Options, PATIENCE, Progress, Pulled};
use firsttoken_synth::Recipe;
use server::{Reply, Server};
use sha2::Digest as _;

/// A folder for models, and how they are fetched into it.
struct Place {
    folder: tempfile::TempDir,
    options: Options,
}

impl Place {
    fn new(hub: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options {
            cache: Cache::new(folder.path().join("models")),
            hub: hub.to_owned(),
            token: None,
            checksum: None,
            patience: PATIENCE,
        };
        Self { folder, options }
    }

    async fn pull(&self, wanted: &str) -> Result<Pulled, Error> {
        pull::pull(&self.options, wanted, |_| {}).await
    }

    /// Every file, by its path from the folder's parent.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        add_files(self.folder.path(), self.folder.path(), &mut files);
        files.sort();
        files
    }

    /// Where the only model in part lies, and how long it is.
    fn partial(&self) -> (PathBuf, u64) {
        let name = self.files().into_iter().find(|name| name.ends_with(".part")).expect("a model in part");
        let file = self.folder.path().join(name);
        let bytes = std::fs::metadata(&file).expect("its length").len();
        (file, bytes)
    }
}

fn add_files(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for found in std::fs::read_dir(folder).expect("a folder").flatten() {
        match found.path().is_dir() {
            true => add_files(root, &found.path(), files),
            false => files.push(found.path().strip_prefix(root).expect("a file below").display().to_string()),
        }
    }
}

/// A model; another seed is another one of the same length.
fn model(seed: u64) -> Vec<u8> {
    Recipe { seed, ..Recipe::default() }.bytes().expect("a model")
}

fn sum(bytes: &[u8]) -> String {
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn checksum(bytes: &[u8]) -> Checksum {
    sum(bytes).parse().expect("a checksum")
}

/// What a hub says of a repository with these files.
fn listing(files: &[(&str, &[u8])]) -> Reply {
    let file = |(name, bytes): &(&str, &[u8])| serde_json::json!({ "rfilename": name, "size": bytes.len(), "lfs": { "sha256": sum(bytes) } });
    let siblings: Vec<_> = files.iter().map(file).collect();
    Reply::new("200 OK", serde_json::json!({ "id": "u/r", "siblings": siblings }).to_string())
}

#[tokio::test]
async fn an_address_is_fetched_once() {
    let server = Server::start(|asked, _| Reply::file(asked, &model(1), Some("\"v1\""))).await;
    let place = Place::new(pull::HUB);
    let mut seen: Vec<Progress> = Vec::new();
    let wanted = format!("{}/a/m.gguf", server.url);
    let pulled = pull::pull(&place.options, &wanted, |progress| seen.push(progress)).await.unwrap();
    assert_eq!(std::fs::read(&pulled.file).unwrap(), model(1));
    assert_eq!((pulled.was_there, pulled.verified, pulled.checksum), (false, false, checksum(&model(1))));
    let total = model(1).len() as u64;
    assert_eq!((seen[0].done, *seen.last().unwrap()), (0, Progress { done: total, total }));
    assert!(seen.windows(2).all(|pair| pair[0].done <= pair[1].done));
    assert!(place.files().iter().all(|name| !name.contains(".part")), "{:?}", place.files());
    // The second time nobody is asked.
    assert!(place.pull(&wanted).await.unwrap().was_there);
    assert_eq!(server.asked().len(), 1);
    assert_eq!(place.options.cache.find("m").unwrap().file, pulled.file);
}

#[tokio::test]
async fn a_hubs_name_is_fetched_and_the_token_stays_with_the_hub() {
    let storage = Server::start(|asked, _| Reply::file(asked, &model(1), Some("\"v1\""))).await;
    let to = format!("{}/blob?signature=secret", storage.url);
    let hub = Server::start(move |asked, _| match asked.path.as_str() {
        "/api/models/u/r?blobs=true" => listing(&[("m-F16.gguf", &model(2)), ("sub/m-Q8_0.gguf", &model(1))]),
        "/u/r/resolve/main/sub/m-Q8_0.gguf" => Reply::redirect("/moved"),
        "/moved" => Reply::redirect(&to),
        _ => Reply::new("404 Not Found", ""),
    })
    .await;
    let mut place = Place::new(&format!("{}/", hub.url));
    place.options.token = Some("hf_token".to_owned());
    let pulled = place.pull("u/r:Q8_0").await.unwrap();
    assert_eq!((pulled.name.as_str(), pulled.verified), ("u/r/sub/m-Q8_0", true));
    assert_eq!(std::fs::read(&pulled.file).unwrap(), model(1));
    assert_eq!(hub.asked().len(), 3);
    assert!(hub.asked().iter().all(|asked| asked.header("authorization") == Some("Bearer hf_token")));
    let stored = storage.asked();
    assert_eq!((stored.len(), stored[0].header("authorization")), (1, None));
    assert_eq!(place.options.cache.find("u/r:q8_0").unwrap().file, pulled.file);
    // An address elsewhere is not told the token either.
    place.pull(&format!("{}/x.gguf", storage.url)).await.unwrap();
    assert_eq!(storage.asked()[1].header("authorization"), None);
}

#[tokio::test]
async fn what_is_cut_goes_on_where_it_was() {
    let server = Server::start(|asked, before| {
        let reply = Reply::file(asked, &model(1), Some("\"v1\""));
        if before < 3 { reply.cut_after(1000) } else { reply }
    })
    .await;
    let place = Place::new(pull::HUB);
    let pulled = place.pull(&format!("{}/m.gguf", server.url)).await.unwrap();
    assert_eq!(std::fs::read(&pulled.file).unwrap(), model(1));
    let asked = server.asked();
    let ranges: Vec<_> = asked.iter().map(|asked| asked.header("range")).collect();
    assert_eq!(ranges, [None, Some("bytes=1000-"), Some("bytes=2000-"), Some("bytes=3000-")]);
    assert!(asked[1..].iter().all(|asked| asked.header("if-range") == Some("\"v1\"")));
}

#[tokio::test]
async fn another_process_goes_on_and_a_new_version_begins_anew() {
    for (version, etag, ranges) in [(1, "\"v1\"", 1000), (2, "\"v2\"", 1000)] {
        let server = Server::start(move |asked, before| match before {
            0 => Reply::file(asked, &model(1), Some("\"v1\"")).cut_after(1000),
            // Nothing comes at all: nobody tries for ever.
            1 => Reply::file(asked, &model(1), Some("\"v1\"")).cut_after(0),
            _ => Reply::file(asked, &model(version), Some(etag)),
        })
        .await;
        let place = Place::new(pull::HUB);
        let wanted = format!("{}/m.gguf", server.url);
        let error = place.pull(&wanted).await.unwrap_err();
        assert!(matches!(error, Error::Cut { done: 1000, .. }), "{error}");
        assert_eq!(place.partial().1, 1000);
        assert!(place.options.cache.find("m").is_err());
        let pulled = place.pull(&wanted).await.unwrap();
        assert_eq!(std::fs::read(&pulled.file).unwrap(), model(version));
        assert_eq!(server.asked()[2].header("range"), Some(format!("bytes={ranges}-").as_str()));
    }
}

#[tokio::test]
async fn a_server_without_ranges_begins_anew() {
    let server = Server::start(|_, before| {
        let reply = Reply::new("200 OK", model(1)).with("etag", "\"v1\"");
        if before == 0 { reply.cut_after(5000) } else { reply }
    })
    .await;
    let place = Place::new(pull::HUB);
    let pulled = place.pull(&format!("{}/m.gguf", server.url)).await.unwrap();
    assert_eq!(std::fs::read(&pulled.file).unwrap(), model(1));
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn what_cannot_be_told_apart_is_not_pieced_together() {
    for etag in [None, Some("W/\"weak\"")] {
        let server = Server::start(move |asked, before| {
            let reply = Reply::file(asked, &model(before as u64), etag);
            if before == 0 { reply.cut_after(5000) } else { reply }
        })
        .await;
        let place = Place::new(pull::HUB);
        let pulled = place.pull(&format!("{}/m.gguf", server.url)).await.unwrap();
        assert_eq!(std::fs::read(&pulled.file).unwrap(), model(1));
        assert_eq!(server.asked()[1].header("range"), None);
    }
}

#[tokio::test]
async fn a_shorter_file_than_what_is_there_begins_anew() {
    let server = Server::start(|asked, before| match before {
        0 => Reply::file(asked, &[model(1), vec![0; 5000]].concat(), None).cut_after(model(1).len() + 100),
        _ => Reply::file(asked, &model(1), None),
    })
    .await;
    let mut place = Place::new(pull::HUB);
    place.options.checksum = Some(checksum(&model(1)));
    let pulled = place.pull(&format!("{}/m.gguf", server.url)).await.unwrap();
    assert_eq!((std::fs::read(&pulled.file).unwrap(), pulled.verified), (model(1), true));
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_wrong_checksum_leaves_nothing() {
    let server = Server::start(|asked, _| Reply::file(asked, &model(1), None)).await;
    let mut place = Place::new(pull::HUB);
    place.options.checksum = Some(checksum(&model(2)));
    let error = place.pull(&format!("{}/m.gguf", server.url)).await.unwrap_err();
    let expected = (checksum(&model(2)), checksum(&model(1)));
    assert!(matches!(error, Error::Checksum { wanted, got } if (wanted, got) == expected), "{error}");
    assert_eq!(place.files(), [""; 0]);
}

#[tokio::test]
async fn the_hubs_checksum_is_held_against_the_file() {
    // In the list of files, …
    let hub = Server::start(|asked, _| match asked.path.starts_with("/api") {
        true => listing(&[("m.gguf", &model(1))]),
        false => Reply::file(asked, &model(2), None),
    })
    .await;
    let mut place = Place::new(&hub.url);
    let error = place.pull("u/r").await.unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    assert_eq!(place.files(), [""; 0]);
    // … where somebody else's is refused before the file is asked for, …
    place.options.checksum = Some(checksum(&model(2)));
    let error = place.pull("u/r").await.unwrap_err();
    assert!(matches!(error, Error::Disagreement { .. }), "{error}");
    assert_eq!(hub.asked().len(), 3);
    assert_eq!(place.files(), [""; 0]);
    // … and in the redirect to the file.
    let other = Server::start(|asked, _| Reply::file(asked, &model(2), None)).await;
    let to = format!("{}/m", other.url);
    let hub = Server::start(move |_, _| Reply::redirect(&to).with("x-linked-etag", &sum(&model(1)))).await;
    let place = Place::new(&hub.url);
    let error = place.pull(&format!("{}/u/r/blob/main/m.gguf", hub.url)).await.unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    assert_eq!(hub.asked()[0].path, "/u/r/resolve/main/m.gguf");
}

#[tokio::test]
async fn what_is_no_model_is_not_kept() {
    let page = "<!doctype html><title>Sign in</title>".repeat(1000);
    let shortened = model(1)[..9000].to_vec();
    for (body, word) in
        [(page.into_bytes(), "no GGUF file"), (shortened, "longer than the file"), (b"GGUF".to_vec(), "ends")]
    {
        let server = Server::start(move |asked, _| Reply::file(asked, &body, None)).await;
        let place = Place::new(pull::HUB);
        let error = place.pull(&format!("{}/m.gguf", server.url)).await.unwrap_err();
        assert!(matches!(error, Error::NoModel { .. }) && error.to_string().contains(word), "{error}");
        assert_eq!(place.files(), [""; 0]);
    }
}

#[tokio::test]
async fn a_full_disk_is_said() {
    // More than any disk has.
    let huge = Server::start(|asked, _| {
        Reply::file(asked, &model(1), None).with("content-length", &(1_u64 << 60).to_string())
    })
    .await;
    let place = Place::new(pull::HUB);
    let error = place.pull(&format!("{}/m.gguf", huge.url)).await.unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert_eq!(place.files(), [""; 0]);
}

/// Linux has a file that every write finds full.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_that_fills_up_is_said() {
    let server = Server::start(|asked, _| Reply::file(asked, &model(1), None)).await;
    let place = Place::new(pull::HUB);
    let folder = place.options.cache.folder().join(server.url.replace("http://", "").replace(':', "_"));
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.join("m.gguf.part")).unwrap();
    let error = place.pull(&format!("{}/m.gguf", server.url)).await.unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(place.options.cache.find("m").is_err());
}

#[tokio::test]
async fn redirects_are_bounded_and_stay_encrypted() {
    let round = Server::start(|_, before| Reply::redirect(&format!("/{before}"))).await;
    let place = Place::new(pull::HUB);
    let error = place.pull(&format!("{}/m.gguf", round.url)).await.unwrap_err();
    assert!(matches!(error, Error::Redirects(_)), "{error}");
    assert_eq!(round.asked().len(), 9);
    for to in ["http://elsewhere.example/m.gguf", "file:///etc/hostname", "m.gguf", "https://a:b@c/m.gguf"] {
        let server = Server::start(move |_, _| Reply::redirect(to)).await;
        let error = place.pull(&format!("{}/m.gguf", server.url)).await.unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{to}: {error}");
    }
    assert_eq!(place.files(), [""; 0]);
}

#[tokio::test]
async fn no_name_leads_out_of_the_folder() {
    let server = Server::start(|asked, _| Reply::file(asked, &model(1), None)).await;
    let place = Place::new(&server.url);
    for path in ["../x.gguf", "a/../../x.gguf", "%2e%2e/x.gguf", "..%2fx.gguf", "%2Fetc%2Fx.gguf", ".x.gguf"]
    {
        let error = place.pull(&format!("{}/{path}", server.url)).await.unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{path}: {error}");
    }
    for name in ["../x", "/etc/x", "u/../r", "..", "u/r:../x"] {
        let error = place.pull(name).await.unwrap_err();
        assert!(matches!(error, Error::Name { .. }), "{name}: {error}");
    }
    assert_eq!(server.asked().len(), 0);
    for file in ["../x.gguf", "/../../x.gguf", "a/../../../x.gguf", "..\\x.gguf", "a//x.gguf"] {
        let hub = Server::start(move |asked, _| match asked.path.starts_with("/api") {
            true => listing(&[(file, &model(1))]),
            false => Reply::file(asked, &model(1), None),
        })
        .await;
        let place = Place::new(&hub.url);
        let error = place.pull("u/r").await.unwrap_err();
        assert!(matches!(error, Error::Answer { .. }), "{file}: {error}");
        assert_eq!(hub.asked().len(), 1);
        assert_eq!(place.files(), [""; 0]);
    }
}

#[tokio::test]
async fn servers_that_break_the_rules() {
    let whole = || Reply::new("200 OK", model(1));
    let replies = [
        (whole().without("content-length"), "how long"),
        (whole().with("content-length", "0").cut_after(0), "how long"),
        (whole().with("content-encoding", "gzip"), "compressed"),
        (Reply::new("206 Partial Content", model(1)).with("content-range", "bytes 5-9/10"), "another part"),
        (Reply::new("206 Partial Content", model(1)), "another part"),
        (Reply::new("500 Internal Server Error", ""), "answers 500"),
        (Reply::new("404 Not Found", ""), "no such file"),
    ];
    for (reply, word) in replies {
        let server = Server::start(move |_, _| reply.clone()).await;
        let place = Place::new(pull::HUB);
        let error =
            place.pull(&format!("{}/m.gguf?signature=secret", server.url)).await.unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains("secret"), "{word}: {error}");
        assert_eq!(place.files(), [""; 0]);
    }
    let hub = Server::start(|_, _| Reply::new("401 Unauthorized", "")).await;
    let error = Place::new(&hub.url).pull("u/r:Q4_0").await.unwrap_err().to_string();
    assert!(error.contains("set HF_TOKEN"), "{error}");
    let hub = Server::start(|_, _| Reply::new("200 OK", "[]")).await;
    assert!(matches!(Place::new(&hub.url).pull("u/r").await, Err(Error::Answer { .. })));
}

#[tokio::test]
async fn silence_ends() {
    let server = Server::start(|asked, _| Reply::file(asked, &model(1), None).silent_after(1000)).await;
    let mut place = Place::new(pull::HUB);
    place.options.patience = Duration::from_millis(100);
    let error = place.pull(&format!("{}/m.gguf", server.url)).await.unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    assert_eq!(place.partial().1, 1000);
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = place.pull(&format!("http://{gone}/m.gguf")).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn two_do_not_write_to_one_file() {
    let server = Server::start(|asked, before| match before {
        0 => Reply::file(asked, &model(1), Some("\"v1\"")).silent_after(1000),
        _ => Reply::file(asked, &model(1), Some("\"v1\"")),
    })
    .await;
    let mut place = Place::new(pull::HUB);
    place.options.patience = Duration::from_millis(100);
    let wanted = format!("{}/m.gguf", server.url);
    place.pull(&wanted).await.unwrap_err();
    let other = std::fs::File::open(place.partial().0).unwrap();
    other.lock().unwrap();
    assert!(matches!(place.pull(&wanted).await, Err(Error::Busy(_))));
    assert!(place.options.cache.remove("m").is_err());
    assert_eq!(place.partial().1, 1000);
    drop(other);
    assert_eq!(std::fs::read(place.pull(&wanted).await.unwrap().file).unwrap(), model(1));
}

#[tokio::test]
async fn another_file_of_one_name_replaces_it_whole() {
    let version = |query: &str| if query.ends_with('2') { 2 } else { 1 };
    let server = Server::start(move |asked, _| Reply::file(asked, &model(version(&asked.path)), None)).await;
    let mut place = Place::new(pull::HUB);
    let wanted = |query: &str| format!("{}/m.gguf?v={query}", server.url);
    place.pull(&wanted("1")).await.unwrap();
    let pulled = place.pull(&wanted("2")).await.unwrap();
    assert_eq!(std::fs::read(&pulled.file).unwrap(), model(2));
    assert!(place.pull(&wanted("2")).await.unwrap().was_there);
    // What is there does not have the checksum wanted, and neither has what comes: the old one stays.
    place.options.checksum = Some(checksum(&model(1)));
    assert!(matches!(place.pull(&wanted("2")).await, Err(Error::Checksum { .. })));
    assert_eq!(std::fs::read(&pulled.file).unwrap(), model(2));
}
