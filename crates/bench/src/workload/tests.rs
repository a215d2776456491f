//! What workloads promise.

use super::*;

#[test]
fn every_shipped_workload_reads_and_asks() {
    for name in Workload::names() {
        let workload = Workload::named(name).expect(name);
        assert_eq!(workload.name, name);
        let conversation = workload.conversation(0, 1, &Vocabulary::estimate());
        assert!(!conversation.expect("endless").turns.is_empty());
    }
}
