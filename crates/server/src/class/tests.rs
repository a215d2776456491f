//! The configuration as operators and enemies write it, and decisions as requests ask for them.

use std::time::{Duration, Instant};

use api::urgency::ServiceTier;
use axum::http::HeaderMap;

use super::*;

const KEYS: &str = r#"
[key.chat]
sha256 = "1111111111111111111111111111111111111111111111111111111111111111"
[key.nightly]
env = "NIGHTLY"
"#;

fn parse(text: &str) -> Result<Traffic, ConfigError> {
    Traffic::parse(text, |name| {
        (name == "NIGHTLY").then(|| "sk-nightly-secret".to_owned())
    })
}

/// What is wrong, as an operator reads it.
fn wrong(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

fn traffic(text: &str) -> Traffic {
    parse(&format!("{text}\n{KEYS}")).unwrap()
}

fn key(traffic: &Traffic, name: &str) -> Option<KeyId> {
    let place = traffic.keys().iter().position(|key| key.name == name);
    Some(KeyId(u16::try_from(place.unwrap()).unwrap()))
}

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

#[test]
fn without_a_configuration_there_are_three_classes() {
    let traffic = Traffic::standard();
    let names: Vec<&str> = traffic.classes().iter().map(|class| &*class.name).collect();
    assert_eq!(names, ["interactive", "standard", "batch"]);
    let [interactive, standard, batch] = traffic.classes() else {
        panic!("three")
    };
    assert_eq!(interactive.slo.ttft_p95, Some(Duration::from_millis(800)));
    assert_eq!(interactive.slo.itl_p99, Some(Duration::from_millis(120)));
    assert_eq!(standard.slo, Slo::default());
    assert_eq!(batch.slo.deadline, Some(Duration::from_secs(86_400)));
    assert_eq!(batch.share_min, 0.05);
}

#[test]
fn a_table_changes_what_it_names_and_nothing_else() {
    let traffic = traffic(
        r#"
        [class.interactive]
        slo = { ttft_p95 = "500ms" }
        overload = "refuse"
        [class.batch]
        queue_max = 10_000
        max_output_tokens = 4096
        max_context_tokens = 32768
        timeout = "10m"
        routes = ["/v1/embeddings"]
        [class.nearly]
        rank = 150
        [tenant.default]
        tokens_per_minute = 200_000
        [tenant.acme]
        weight = 4
        keys = ["chat"]
        "#,
    );
    let names: Vec<&str> = traffic.classes().iter().map(|class| &*class.name).collect();
    assert_eq!(names, ["interactive", "nearly", "standard", "batch"]);
    let interactive = &traffic.classes()[0];
    assert_eq!(interactive.overload, Overload::Refuse);
    assert_eq!(
        interactive.slo.itl_p99, None,
        "targets are replaced as a whole"
    );
    let batch = traffic.class(traffic.batch());
    assert_eq!((batch.share_min, batch.queue_max), (0.05, Some(10_000)));
    assert_eq!(
        (batch.output_tokens_max, batch.context_tokens_max),
        (Some(4096), Some(32_768))
    );
    assert_eq!(batch.timeout, Some(Duration::from_secs(600)));
    assert_eq!(traffic.default_terms().tokens_per_minute, Some(200_000));
    assert_eq!(
        traffic.tenants()[0].terms,
        TenantTerms {
            weight: 4.0,
            tokens_per_minute: None
        }
    );
}

#[test]
fn the_example_of_the_guide_reads() {
    let guide = include_str!("../../../../docs/guides/classes.md");
    let (_, example) = guide.split_once("```toml").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let traffic = Traffic::parse(example, |name| Some(format!("the value of {name}"))).unwrap();
    assert_eq!(
        (
            traffic.classes().len(),
            traffic.tenants().len(),
            traffic.keys().len()
        ),
        (4, 1, 2)
    );
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_line() {
    for (text, place) in [
        (
            "[class.batch]\nshare_min = nan",
            "class.batch.share_min: line 2: must be a number from 0 to 1",
        ),
        (
            "[class.batch]\nshare_min = -0.1",
            "class.batch.share_min: line 2: ",
        ),
        (
            "[class.batch]\n\nqueue_max = 0",
            "class.batch.queue_max: line 3: must be a whole number from 1 to",
        ),
        (
            "[class.batch]\nqueue_max = -1",
            "class.batch.queue_max: line 2: ",
        ),
        (
            "[class.batch]\nmax_output_tokens = 99999999999999",
            "class.batch.max_output_tokens: line 2: ",
        ),
        (
            "[class.batch]\nmax_context_tokens = 1.5",
            "class.batch.max_context_tokens: line 2: ",
        ),
        (
            "[class.batch]\nslo = { ttft_p95 = \"soon\" }",
            "class.batch.slo.ttft_p95: line 2: must be a duration",
        ),
        (
            "[class.batch]\nslo = { ttft_p95 = 800 }",
            "class.batch.slo.ttft_p95: line 2: ",
        ),
        (
            "[class.batch]\nslo = { ttft_p59 = \"1s\" }",
            "class.batch.slo.ttft_p59: line 2: unknown field",
        ),
        (
            "[class.batch]\nslo = { itl_p99 = \"5h\" }",
            "class.batch.slo.itl_p99: line 2: ",
        ),
        (
            "[class.batch]\noverload = \"shed\"",
            "class.batch.overload: line 2: unknown variant",
        ),
        (
            "[class.batch]\noverload = \"refuse\"",
            "class.batch.overload: line 2: \"refuse\" needs a target",
        ),
        (
            "[class.batch]\ntimeout = \"0s\"",
            "class.batch.timeout: line 2: ",
        ),
        (
            "[class.batch]\nroutes = [\"/metrics\"]",
            "class.batch.routes: line 2: \"/metrics\" is no route",
        ),
        (
            "[class.batch]\nkeys = [\"who\"]",
            "class.batch.keys: line 2: entry 1 is the name of no key",
        ),
        (
            "[class.fast]\nshare_min = 0.1",
            "class.fast: line 1: needs a rank",
        ),
        (
            "[class.fast]\nrank = 100",
            "class.fast: line 1: has the rank of interactive",
        ),
        ("[class.fast]\nrank = 70000", "class.fast.rank: line 2: "),
        ("[class.\"a b\"]\nrank = 1", "class: line 1: a name has"),
        (
            "[class.interactive]\nshare_min = 0.96",
            "class: line 1: the share_min of all classes",
        ),
        ("[tenant.a]\nweight = 0", "tenant.a.weight: line 2: "),
        ("[tenant.a]\nweight = -inf", "tenant.a.weight: line 2: "),
        ("[tenant.a]\nweight = nan", "tenant.a.weight: line 2: "),
        ("[tenant.a]\nweight = \"4\"", "tenant.a.weight: line 2: "),
        (
            "[tenant.a]\ntokens_per_minute = 0",
            "tenant.a.tokens_per_minute: line 2: ",
        ),
        (
            "[tenant.default]\nkeys = [\"chat\"]",
            "tenant.default.keys: line 2: ",
        ),
        ("[tenant.a]\n[tenant.a]", "line 2: "),
        ("classes = 1", "classes: line 1: unknown field"),
        ("[class", "line 1: "),
    ] {
        let told = wrong(text);
        assert!(told.starts_with(place), "{text:?} told {told:?}");
    }
}

#[test]
fn a_name_stands_in_one_place_only() {
    let two = |first: &str, second: &str| wrong(&format!("{first}\n{second}\n{KEYS}"));
    let told = two(
        "[class.batch]\nkeys = [\"chat\"]",
        "[class.standard]\nkeys = [\"chat\"]",
    );
    assert!(
        told.contains("chat stands here or in another class already"),
        "{told}"
    );
    let told = two(
        "[tenant.a]\nkeys = [\"chat\"]",
        "[tenant.b]\nkeys = [\"chat\"]",
    );
    assert!(told.contains("another tenant already"), "{told}");
    let told = two(
        "[class.batch]\nroutes = [\"/v1/embeddings\"]",
        "[class.standard]\nroutes = [\"/v1/embeddings\"]",
    );
    assert!(told.contains("another class already"), "{told}");
}

#[test]
fn sizes_are_bounded() {
    let many = |num: usize, line: fn(usize) -> String| (0..num).map(line).collect::<String>();
    let classes = many(4000, |idx| format!("[class.c{idx}]\nrank = {idx}\n"));
    assert!(wrong(&classes).contains("4000 are declared, at most 16 may be"));
    let fourteen = many(14, |idx| format!("[class.c{idx}]\nrank = {idx}\n"));
    assert!(
        wrong(&fourteen).contains("17 are declared"),
        "with the built-in ones"
    );
    let tenants = many(1025, |idx| format!("[tenant.t{idx}]\n"));
    assert!(wrong(&tenants).contains("at most 1024"));
    assert!(wrong(&"#".repeat(2 << 20)).contains("more than 1048576 bytes"));
    let deep = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(!wrong(&deep).is_empty());
}

#[test]
fn no_message_repeats_a_key() {
    for text in [
        "[key]\nchat = \"sk-very-secret\"",
        "[key.chat]\nsha256 = \"sk-very-secret\"",
        "[key.chat]\nenv = [\"sk-very-secret\"]",
        "[key.chat]\nvalue = \"sk-very-secret\"",
        "[class.batch]\nkeys = [\"sk-very-secret\"]",
        "[tenant.a]\nkeys = [\"sk-very-secret\"]",
        "key = \"sk-very-secret\"",
    ] {
        let told = wrong(text);
        assert!(!told.contains("secret"), "{told}");
    }
    let told = format!("{:?}", traffic(""));
    assert!(
        !told.contains("11111111") && !told.contains("17, 17"),
        "{told}"
    );
}

#[test]
fn keys_come_by_digest_or_from_the_environment() {
    let traffic = traffic("");
    assert_eq!(traffic.keys()[0].digest, [0x11; 32]);
    let same = parse("[key.a]\nenv = \"NIGHTLY\"\n[key.b]\nenv = \"NIGHTLY\"").unwrap_err();
    assert_eq!(same.to_string(), "key.b: line 3: is the same key as a");
    assert!(
        wrong("[key.a]\nenv = \"MISSING\"")
            .starts_with("key.a.env: line 2: the environment has no")
    );
    assert!(wrong("[key.a]").contains("needs either sha256 or env"));
}

#[test]
fn the_first_that_says_something_decides() {
    let traffic = traffic(
        "[class.standard]\nroutes = [\"/v1/embeddings\"]\n[class.interactive]\nkeys = [\"chat\"]\n[class.batch]\nkeys = [\"nightly\"]",
    );
    let (chat, nightly) = (key(&traffic, "chat"), key(&traffic, "nightly"));
    let objective = "x-gateway-inference-objective";
    for (tier, header, key, route, streams, told) in [
        (
            None,
            None,
            None,
            "/v1/completions",
            false,
            "standard; reason=\"default\"",
        ),
        (
            None,
            None,
            None,
            "/v1/completions",
            true,
            "interactive; reason=\"streams\"",
        ),
        (
            None,
            None,
            None,
            "/v1/embeddings",
            true,
            "standard; reason=\"route\"",
        ),
        (
            None,
            None,
            chat,
            "/v1/embeddings",
            false,
            "interactive; reason=\"key\"",
        ),
        (
            None,
            None,
            nightly,
            "/v1/completions",
            true,
            "batch; reason=\"key\"",
        ),
        (
            None,
            Some("batch"),
            chat,
            "/v1/completions",
            true,
            "batch; reason=\"objective\"",
        ),
        (
            Some("flex"),
            Some("batch"),
            chat,
            "/v1/completions",
            true,
            "standard; reason=\"service_tier\"",
        ),
        (
            Some("auto"),
            Some("batch"),
            chat,
            "/v1/completions",
            true,
            "batch; reason=\"objective\"",
        ),
        (
            Some("default"),
            None,
            None,
            "/v1/completions",
            true,
            "interactive; reason=\"streams\"",
        ),
        (
            Some("priority"),
            None,
            None,
            "/v1/completions",
            false,
            "interactive; reason=\"service_tier\"",
        ),
        (
            Some("batch"),
            None,
            None,
            "/v1/completions",
            true,
            "batch; reason=\"service_tier\"",
        ),
        // A key's class is a limit.
        (
            Some("priority"),
            None,
            nightly,
            "/v1/completions",
            false,
            "batch; reason=\"key_limit\"",
        ),
        (
            None,
            Some("interactive"),
            nightly,
            "/v1/completions",
            false,
            "batch; reason=\"key_limit\"",
        ),
        (
            Some("batch"),
            None,
            chat,
            "/v1/completions",
            true,
            "batch; reason=\"service_tier\"",
        ),
    ] {
        let wishes = Wishes {
            objective: header.map(|name| traffic.class_named(name).unwrap()),
            ..Wishes::default()
        };
        let read =
            header.map(|name| Wishes::read(&headers(&[(objective, name)]), &traffic).unwrap());
        assert_eq!(read.unwrap_or_default(), wishes);
        let body = Body {
            service_tier: tier.map(|word| ServiceTier::from_word(word).unwrap()),
            priority: 0,
            streams,
        };
        let decision = traffic.decide(Caller { key, route }, &wishes, body);
        assert_eq!(decision.header(&traffic), told);
    }
}

#[test]
fn targets_are_the_requests_own_or_its_classes() {
    let traffic = Traffic::standard();
    let own = headers(&[("x-slo-ttft-ms", "250"), ("x-slo-tpot-ms", "40.5")]);
    let decide = |headers: &HeaderMap| {
        let wishes = Wishes::read(headers, &traffic).unwrap();
        let caller = Caller {
            key: None,
            route: "/v1/completions",
        };
        let body = Body {
            service_tier: Some(ServiceTier::Priority),
            priority: -3,
            streams: false,
        };
        traffic.decide(caller, &wishes, body)
    };
    let decision = decide(&own);
    assert_eq!(decision.ttft, Some(Duration::from_millis(250)));
    assert_eq!(decision.itl, Some(Duration::from_micros(40_500)));
    assert_eq!(decision.priority, -3);
    let decision = decide(&HeaderMap::new());
    assert_eq!(
        (decision.ttft, decision.itl),
        (
            Some(Duration::from_millis(800)),
            Some(Duration::from_millis(120))
        )
    );
}

#[test]
fn headers_that_mean_nothing_are_refused_by_name() {
    let traffic = Traffic::standard();
    let long: &'static str = Box::leak("x".repeat(129).into_boxed_str());
    for (name, value) in [
        ("x-slo-ttft-ms", "0"),
        ("x-slo-ttft-ms", "-5"),
        ("x-slo-ttft-ms", "nan"),
        ("x-slo-ttft-ms", "1e3"),
        ("x-slo-ttft-ms", ""),
        ("x-slo-ttft-ms", "3600001"),
        ("x-slo-tpot-ms", "soon"),
        ("x-slo-tpot-ms", "inf"),
        ("x-gateway-inference-objective", "premium"),
        ("x-gateway-inference-objective", ""),
        ("x-gateway-inference-fairness-id", ""),
        ("x-gateway-inference-fairness-id", "a b"),
        ("x-gateway-inference-fairness-id", long),
    ] {
        let error = Wishes::read(&headers(&[(name, value)]), &traffic).expect_err(value);
        assert_eq!(error.param(), Some(name));
    }
    let twice = headers(&[("x-slo-ttft-ms", "5"), ("x-slo-ttft-ms", "5")]);
    assert!(Wishes::read(&twice, &traffic).is_err());
}

#[test]
fn the_tier_that_is_told_is_the_one_that_was_had() {
    let traffic = traffic("[class.batch]\nkeys = [\"nightly\"]");
    let told = |word, key_name: Option<&str>| {
        let asked = ServiceTier::from_word(word).unwrap();
        let caller = Caller {
            key: key_name.and_then(|name| key(&traffic, name)),
            route: "/v1/completions",
        };
        let body = Body {
            service_tier: Some(asked),
            ..Body::default()
        };
        traffic
            .decide(caller, &Wishes::default(), body)
            .told_tier(&traffic, asked)
    };
    let words = ["auto", "default", "priority", "flex", "batch"];
    assert_eq!(
        words.map(|word| told(word, None)),
        ["default", "default", "priority", "flex", "batch"]
    );
    assert_eq!(words.map(|word| told(word, Some("nightly"))), ["batch"; 5]);
    assert_eq!(ServiceTier::from_word("scale"), None);
}

#[test]
fn the_tenant_is_the_keys_then_the_fairness_ids() {
    let traffic =
        traffic("[tenant.acme]\nweight = 4\nkeys = [\"chat\"]\n[tenant.open]\nweight = 2");
    let now = Instant::now();
    let tenants = Tenants::new(&traffic, now);
    let enter = |key_name: Option<&str>, fairness| {
        let key = key_name.and_then(|name| key(&traffic, name));
        tenants
            .enter(&traffic, key, fairness, now)
            .map(|lease| (lease.id(), lease.weight()))
    };
    let (default, acme, open) = (TenantId(0), TenantId(1), TenantId(2));
    assert_eq!(enter(None, None), Ok((default, 1.0)));
    assert_eq!(enter(Some("chat"), None), Ok((acme, 4.0)));
    assert_eq!(
        enter(Some("chat"), Some("open")),
        Ok((acme, 4.0)),
        "the key decides"
    );
    assert_eq!(enter(Some("nightly"), Some("open")), Ok((open, 2.0)));
    assert_eq!(enter(None, Some("default")), Ok((default, 1.0)));
    assert_eq!(enter(None, Some("someone")), Ok((TenantId(3), 1.0)));
    let NotEntered::NotYours(error) = enter(Some("nightly"), Some("acme")).unwrap_err() else {
        panic!("only its keys speak for it")
    };
    assert_eq!(error.param(), Some("x-gateway-inference-fairness-id"));
}

#[test]
fn a_bucket_lets_in_while_something_is_left_and_says_when_it_refills() {
    let traffic = traffic("[tenant.default]\ntokens_per_minute = 600");
    let start = Instant::now();
    let tenants = Tenants::new(&traffic, start);
    let enter = |at_s| {
        let now = start + Duration::from_secs_f64(at_s);
        match tenants.enter(&traffic, None, None, now) {
            Ok(lease) => Ok(lease),
            Err(NotEntered::OverShare(over)) => Err(over.retry_after.as_secs_f64()),
            Err(other) => panic!("{other:?}"),
        }
    };
    // More than a minute's worth: let in all the same, and paid back at ten a second.
    enter(0.0).unwrap().charge(1000, start);
    let wait = enter(0.0).unwrap_err();
    assert!(
        (wait - 40.1).abs() < 1e-6,
        "400 owed and one to have: {wait}"
    );
    assert!((enter(39.0).unwrap_err() - 1.1).abs() < 1e-6);
    assert!(enter(40.2).is_ok());
    // A rest fills it to a minute's worth and no more.
    let later = start + Duration::from_secs(10_000);
    enter(10_000.0).unwrap().charge(600, later);
    assert!(enter(10_000.0).is_err());
}

#[test]
fn buckets_of_two_tenants_do_not_mix() {
    let traffic = traffic("[tenant.default]\ntokens_per_minute = 60");
    let now = Instant::now();
    let tenants = Tenants::new(&traffic, now);
    let enter = |fairness| tenants.enter(&traffic, None, Some(fairness), now);
    enter("a").unwrap().charge(1000, now);
    assert!(matches!(enter("a"), Err(NotEntered::OverShare(_))));
    assert!(enter("b").is_ok());
}

#[test]
fn hostile_fairness_ids_take_bounded_room_and_shed_no_debt() {
    let traffic = traffic("[tenant.default]\ntokens_per_minute = 60\n[tenant.open]");
    let now = Instant::now();
    let tenants = Tenants::with_places(&traffic, 8, now);
    let enter = |name: &str, now| tenants.enter(&traffic, None, Some(name), now).unwrap();
    enter("debtor", now).charge(1000, now);
    let busy = enter("busy", now);
    for idx in 0..10_000 {
        drop(enter(&format!("stranger-{idx}"), now));
    }
    assert_eq!(tenants.num_places(), 2 + 8);
    assert!(
        tenants.enter(&traffic, None, Some("debtor"), now).is_err(),
        "its debt is still known"
    );
    assert_eq!(
        enter("busy", now).id(),
        busy.id(),
        "who is in flight keeps its place"
    );
    // All places busy: newcomers share the default's.
    let held: Vec<Lease> = (0..6)
        .map(|idx| enter(&format!("held-{idx}"), now))
        .collect();
    assert_eq!(enter("one more", now).id(), TenantId(0));
    drop(held);
    // Once the debt is paid its place is free as well.
    let paid = now + Duration::from_secs(3600);
    let held: Vec<Lease> = (0..7)
        .map(|idx| enter(&format!("late-{idx}"), paid))
        .collect();
    assert!(held.iter().all(|lease| lease.id().0 >= 2));
}
