use crate::rig::{Demo, asking};
#[tokio::test]
async fn try_it() {
    let demo = Demo::new();
    let (s, v) = demo.ask(asking("Can I pause my annual subscription?")).await;
    println!("{s} {v:#}");
}
