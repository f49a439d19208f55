//! Wait classes: the groups that a report adds wait events up by, with the names Oracle gave them.
//!
//! `Cluster`, `Queueing` and `Scheduler` come from Oracle's reports only: nothing here waits so.

use std::fmt;

/// The group a wait event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitClass {
    /// A request waits for data to be read or written.
    UserIo,
    /// Work in the background waits for data to be read or written.
    SystemIo,
    /// A request waits for what it wrote to become durable.
    Commit,
    /// A wait that other sizes would avoid: a full tier, too little space for redo.
    Configuration,
    /// A wait for another thread inside the program.
    Concurrency,
    /// A wait for a message on a network.
    Network,
    /// A wait for a lock that the application asked for.
    Application,
    /// A wait caused by a command of the administrator.
    Administrative,
    /// A wait for another instance of a cluster.
    Cluster,
    /// A wait for a message of a queue.
    Queueing,
    /// A wait for a turn that a resource manager gives.
    Scheduler,
    /// Nothing to do; left out of every total of waits.
    Idle,
    /// None of the above.
    Other,
}

impl WaitClass {
    /// Every class, in the order reports list them.
    pub const ALL: [WaitClass; 13] = [
        WaitClass::UserIo,
        WaitClass::SystemIo,
        WaitClass::Commit,
        WaitClass::Configuration,
        WaitClass::Concurrency,
        WaitClass::Network,
        WaitClass::Application,
        WaitClass::Administrative,
        WaitClass::Cluster,
        WaitClass::Queueing,
        WaitClass::Scheduler,
        WaitClass::Idle,
        WaitClass::Other,
    ];

    /// The name in reports, for instance `User I/O`.
    pub const fn name(self) -> &'static str {
        match self {
            WaitClass::UserIo => "User I/O",
            WaitClass::SystemIo => "System I/O",
            WaitClass::Commit => "Commit",
            WaitClass::Configuration => "Configuration",
            WaitClass::Concurrency => "Concurrency",
            WaitClass::Network => "Network",
            WaitClass::Application => "Application",
            WaitClass::Administrative => "Administrative",
            WaitClass::Cluster => "Cluster",
            WaitClass::Queueing => "Queueing",
            WaitClass::Scheduler => "Scheduler",
            WaitClass::Idle => "Idle",
            WaitClass::Other => "Other",
        }
    }

    /// The class of this name, as [`WaitClass::name`] spells it.
    pub fn from_name(name: &str) -> Option<WaitClass> {
        WaitClass::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for WaitClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_found_by_its_name() {
        for class in WaitClass::ALL {
            assert_eq!(WaitClass::from_name(class.name()), Some(class));
        }
        assert_eq!(WaitClass::from_name("user i/o"), None);
    }

    #[test]
    fn a_class_prints_its_name_and_obeys_the_width() {
        assert_eq!(format!("{:<12}|", WaitClass::UserIo), "User I/O    |");
    }
}
