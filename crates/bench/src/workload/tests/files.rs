//! Nothing in a workload file is silently ignored.

use super::*;

fn refusal(text: &str) -> String {
    let error = file::parse(text, "test.toml", Path::new(".")).expect_err("refused");
    error.to_string()
}

fn class_refusal(lines: &str) -> String {
    refusal(&format!(
        "version = 1\nname = \"test\"\n[[class]]\nname = \"default\"\n{lines}"
    ))
}

#[test]
fn every_shipped_workload_reads_describes_itself_and_has_its_own_hash() {
    let mut hashes = Vec::new();
    for name in Workload::names() {
        let workload = Workload::named(name).expect(name);
        assert_eq!(workload.name, name);
        assert!(workload.description.len() > 30, "{name}");
        assert_eq!(workload.hash.len(), 16, "{name}");
        assert!(workload.warnings.is_empty(), "{name}");
        assert_eq!(workload.num_conversations(), None, "{name}");
        assert!(workload.needs_vocabulary(), "{name}");
        assert!(!hashes.contains(&workload.hash), "{name}");
        hashes.push(workload.hash);
    }
}

#[test]
fn an_unknown_name_lists_those_there_are() {
    let error = Workload::named("mxied").expect_err("unknown").to_string();
    for name in [
        "mxied",
        "mixed",
        "shared",
        "chat",
        "rag",
        "agents",
        "summarise",
        "longburst",
    ] {
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn an_unknown_key_is_named_with_its_place() {
    let error = class_refusal("promt = 5\nprompt = 5\noutput = 5");
    assert!(
        error.contains("promt") && error.contains("class[0]"),
        "{error}"
    );
    let error = class_refusal("prompt = { distribution = \"fixed\", valeu = 3 }\noutput = 5");
    assert!(
        error.contains("valeu") && error.contains("class[0].prompt"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_key() {
    let cases = [
        ("output = 1", "class[0].prompt: is missing"),
        ("prompt = 1", "class[0].output: is missing"),
        ("prompt = 0\noutput = 1", "class[0].prompt.value: is 0"),
        ("prompt = -5\noutput = 1", "class[0].prompt.value: is -5"),
        ("prompt = nan\noutput = 1", "class[0].prompt.value: is NaN"),
        ("prompt = 1e30\noutput = 1", "class[0].prompt.value"),
        (
            "prompt = { distribution = \"lognormal\", median = 5 }\noutput = 1",
            "class[0].prompt.sigma: is missing",
        ),
        (
            "prompt = { distribution = \"fixed\", value = 5, sigma = 1 }\noutput = 1",
            "class[0].prompt.sigma: means nothing",
        ),
        (
            "prompt = { distribution = \"uniform\", min = 9, max = 5 }\noutput = 1",
            "class[0].prompt.min: is 9",
        ),
        (
            "prompt = { distribution = \"normal\", mean = 9, deviation = -1 }\noutput = 1",
            "class[0].prompt.deviation",
        ),
        (
            "prompt = { distribution = \"empirical\", values = [] }\noutput = 1",
            "class[0].prompt.values",
        ),
        (
            "prompt = { distribution = \"empirical\", values = [1, 2], weights = [1] }\noutput = 1",
            "class[0].prompt.weights",
        ),
        (
            "prompt = { distribution = \"empirical\", values = [1], weights = [0] }\noutput = 1",
            "class[0].prompt.weights",
        ),
        (
            "prompt = 5\noutput = { distribution = \"fixed\", value = 1, unit = \"words\" }",
            "class[0].output.unit",
        ),
        (
            "prompt = { distribution = \"fixed\", value = 1, exact = true }\noutput = 1",
            "class[0].prompt.exact",
        ),
        (
            "prompt = 5\noutput = 1\nthink = 2",
            "class[0].think: means nothing",
        ),
        (
            "prompt = 5\noutput = 1\nturns = 2\nhistory = \"recorded\"",
            "class[0].history",
        ),
        ("prompt = 5\noutput = 1\nturns = 0", "class[0].turns.value"),
        ("prompt = 5\noutput = 1\nslo = \"ttft<5\"", "class[0].slo"),
        (
            "prompt = 5\noutput = 1\nshared_prefix = { tokens = 0 }",
            "class[0].shared_prefix.tokens",
        ),
        (
            "prompt = 5\noutput = 1\nshared_prefix = { tokens = 1, groups = 0 }",
            "class[0].shared_prefix.groups",
        ),
        (
            "prompt = 5\noutput = 1\nshared_prefix = { tokens = 1, share = 1.5 }",
            "class[0].shared_prefix.share",
        ),
        (
            "prompt = 5\noutput = 1\nbody = { messages = 1 }",
            "class[0].body.messages",
        ),
        (
            "prompt = 5\noutput = 1\nheaders = { \"a b\" = \"c\" }",
            "class[0].headers",
        ),
        (
            "prompt = 5\noutput = 1\nheaders = { a = \"c\\r\\nd: e\" }",
            "class[0].headers",
        ),
        (
            "prompt = 5\noutput = 1\narrivals = { process = \"poisson\" }",
            "class[0].arrivals.rate: is missing",
        ),
        (
            "prompt = 5\noutput = 1\narrivals = { process = \"constant\", rate = 0 }",
            "class[0].arrivals: rate is 0",
        ),
        (
            "prompt = 5\noutput = 1\narrivals = { process = \"poisson\", rate = 1, burstiness = 2 }",
            "class[0].arrivals.burstiness",
        ),
        (
            "prompt = 5\noutput = 1\narrivals = { process = \"replay\" }",
            "class[0].arrivals.process",
        ),
        ("prompt = 5\noutput = 1\nshare = 0", "class[0].share"),
        (
            "prompt = 5\noutput = 1\nshare = 1\narrivals = { process = \"poisson\", rate = 1 }",
            "class[0].share",
        ),
        (
            "data = { file = \"a\", format = \"mooncake\" }",
            "class[0].data.timestamps: is missing",
        ),
        (
            "prompt = 5\ndata = { file = \"a\", format = \"prompts\" }",
            "class[0].prompt: means nothing",
        ),
        (
            "data = { file = \"a\", format = \"azure\", timestamps = \"delta\" }",
            "class[0].data.timestamps",
        ),
        (
            "data = { file = \"a\", format = \"azure\", turns_max = 2 }",
            "class[0].data.turns_max",
        ),
    ];
    for (lines, expected) in cases {
        let error = class_refusal(lines);
        assert!(error.contains(expected), "{lines}\n{error}");
    }
}

#[test]
fn a_file_as_a_whole_is_checked() {
    let class = "[[class]]\nname = \"a\"\nprompt = 1\noutput = 1\n";
    let cases = [
        (
            format!("version = 2\nname = \"x\"\n{class}"),
            "version: is 2",
        ),
        (
            format!("version = 1\nname = \" \"\n{class}"),
            "name: is empty",
        ),
        (
            "version = 1\nname = \"x\"\nclass = []".to_owned(),
            "class: has 0",
        ),
        (
            format!("version = 1\nname = \"x\"\n{class}{class}"),
            "class[0].share: is missing",
        ),
        (
            format!("version = 1\nname = \"x\"\n{class}share = 1\n{class}share = 1\n"),
            "class[1].name: \"a\" is there twice",
        ),
        (
            format!(
                "version = 1\nname = \"x\"\n{class}[[burst]]\nclass = \"b\"\nsize = 1\nevery = 2\n"
            ),
            "burst[0].class: no class is called \"b\"",
        ),
        (
            format!(
                "version = 1\nname = \"x\"\n{class}[[burst]]\nclass = \"a\"\nsize = 3\nevery = 2\n"
            ),
            "burst[0].every: is 2",
        ),
        (
            format!("version = 1\nname = \"x\"\n{class}[[burst]]\nclass = \"a\"\nsize = 3\n"),
            "either every or probability",
        ),
        ("version = ".to_owned(), "line 1"),
    ];
    for (text, expected) in cases {
        let error = refusal(&text);
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn a_hash_is_of_the_file_and_of_the_data_it_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("w.toml");
    let text = "version = 1\nname = \"d\"\n[[class]]\nname = \"a\"\ndata = { file = \"p.jsonl\", format = \"prompts\" }\noutput = 3\n";
    std::fs::write(&path, text).expect("written");
    let hash_with = |prompts: &str| {
        std::fs::write(folder.path().join("p.jsonl"), prompts).expect("written");
        Workload::load(&path).expect("loads").hash
    };
    let first = hash_with("{\"prompt\": \"one\"}\n");
    assert_eq!(first, hash_with("{\"prompt\": \"one\"}\n"));
    assert_ne!(first, hash_with("{\"prompt\": \"two\"}\n"));
    assert_ne!(
        of_class("prompt = 5\noutput = 1").hash,
        of_class("prompt = 6\noutput = 1").hash
    );
}

#[test]
fn a_file_that_is_not_there_too_large_or_no_text_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("w.toml");
    assert!(matches!(
        Workload::load(&path),
        Err(WorkloadError::Unreadable { .. })
    ));
    std::fs::write(&path, [0xFF, 0xFE, 0x00]).expect("written");
    assert!(matches!(
        Workload::load(&path),
        Err(WorkloadError::Syntax { .. })
    ));
    let file = std::fs::File::create(&path).expect("created");
    file.set_len(LIMITS.file_bytes_max + 1).expect("grown");
    assert!(matches!(
        Workload::load(&path),
        Err(WorkloadError::TooLarge { .. })
    ));
}

/// Every example of the guide is a whole workload file; data that one names is what the guide shows beside it.
#[test]
fn every_example_of_the_guide_reads() {
    let guide = include_str!("../../../../../docs/guides/workloads.md");
    let folder = tempfile::tempdir().expect("a folder");
    let blocks: Vec<&str> = guide.split("```").skip(1).step_by(2).collect();
    let mut keys = String::new();
    let mut num_files = 0;
    for block in &blocks {
        // A block of data says which file it is, behind its language.
        let (head, text) = block.split_once('\n').expect("a line");
        match head.split_once(' ') {
            Some((_, name)) => {
                std::fs::write(folder.path().join(name), text).expect("written");
            }
            None if head == "toml" => {
                let workload = file::parse(text, "the guide", folder.path());
                let workload = workload.unwrap_or_else(|error| panic!("{error}\n{text}"));
                assert!(ask_any(&workload).is_some(), "{text}");
                keys.push_str(text);
                num_files += 1;
            }
            None => {}
        }
    }
    assert!(num_files >= 8, "{num_files} examples");
    // Each key of the format is in some example.
    for key in [
        "version",
        "name",
        "description",
        "share",
        "arrivals",
        "slo",
        "prompt",
        "follow_up",
        "output",
        "shared_prefix",
        "turns",
        "think",
        "history",
        "headers",
        "body",
        "data",
        "tokens",
        "groups",
        "class",
        "size",
        "every",
        "probability",
        "file",
        "format",
        "timestamps",
        "block_tokens",
        "order",
        "repeat",
        "turns_max",
        "process",
        "rate",
        "burstiness",
        "from",
        "to",
        "seconds",
        "speed",
        "distribution",
        "value",
        "min",
        "max",
        "mean",
        "deviation",
        "median",
        "sigma",
        "values",
        "weights",
        "unit",
        "exact",
    ] {
        assert!(
            keys.contains(&format!("{key} =")) || keys.contains(&format!("[{key}]")),
            "no example has {key}"
        );
    }
    for name in Workload::names() {
        assert!(
            guide.contains(&format!("`{name}`")),
            "{name} is not described"
        );
    }
}

fn ask_any(workload: &Workload) -> Option<Conversation> {
    let of = |number| workload.conversation(number, 1, &Vocabulary::estimate());
    of(0).or_else(|| of(Workload::own_number(0, 0)))
}
