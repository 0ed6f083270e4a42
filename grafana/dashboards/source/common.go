package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

// leadership is about who does the work, and whether somebody else could.
func leadership() row {
	return row{title: "Leadership and failover", panels: []panel{
		strip{
			title: "Who leads",
			about: about{
				shows:  "Each replica over time: whether it leads or stands by. A replica that ended has no more colour.",
				normal: "Exactly one leads. A leader that is stopped is followed within a second, one that crashed within 15 s (`--leader-elect-lease-duration`).",
				do:     "Nobody leads: look at the log of a standby and at the panel of failed attempts. It changes all the time: the API server is slow, or the replica is short of CPU.",
				alert:  "CCMNoLeader",
			},
			lines: []line{{of("leader_election_master_status"), "{{instance}}"}},
			words: map[string]word{"0": {"stands by", grey}, "1": {"leads", green}},
			wide:  10,
		}.panel(),
		number{
			title: "Leader changes",
			about: about{
				shows:  "How often the Lease went to another replica in the time that is shown, as the Lease counts it itself.",
				normal: "One or two for each roll-out or node drain.",
				do:     "More than that: each one costs a start of the controller. Find out why leaders end: log, restarts, time to renew.",
				alert:  "CCMLeaderFlapping",
			},
			lines: []line{{sum("", changes(of("ccm_leader_election_lease_transitions"))), ""}},
			base:  green,
			steps: []step{{3, yellow}, {10, red}},
			high:  8,
		}.panel(),
		graph{
			title: "Time left when the Lease is renewed",
			about: about{
				shows:  "What was left of the leader's term just before it was renewed. At 0 it must stop working and its process ends.",
				normal: "The renew deadline less the retry period: 8 s of 10 s.",
				do:     "Falling: renewals fail or are slow. Look at the failed attempts and at the API server.",
			},
			unit:  units.Seconds,
			lines: []line{{of("ccm_leader_election_term_remaining_seconds") + " > 0", "{{instance}}"}},
			bad:   []step{{2, red}},
			wide:  10,
		}.panel(),
		graph{
			title: "Time of a renewal",
			about: about{
				shows:  "How long it took to renew the Lease: half of the times, and 99 of 100, it was faster.",
				normal: "Some 10 ms.",
				do:     "Above a second: the API server or etcd is slow, for everybody. Attempts are given up at 5 s.",
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, short, "", of("ccm_leader_election_renew_duration_seconds_bucket")), "half of them"},
				{quantile(0.99, short, "", of("ccm_leader_election_renew_duration_seconds_bucket")), "99 %"},
			},
			bad:  []step{{2, red}},
			wide: 12,
		}.panel(),
		graph{
			title: "Failed attempts at the Lease",
			about: about{
				shows:  "Failed attempts to take, renew or release the Lease, per second, by reason.",
				normal: "None, but a `conflict` when two candidates meet.",
				do:     "`forbidden` or `unauthorized`: mend the Role for Leases in its namespace. `timeout` or `unavailable`: the API server.",
			},
			unit:  units.Short,
			lines: []line{{sum("reason", rate(of("ccm_leader_election_failures_total"))), "{{reason}}"}},
			wide:  12,
		}.panel(),
	}}
}

// changes is how much a number rose that all replicas of one Lease report alike.
func changes(gauge string) string {
	const lease = "cluster, namespace, name"
	return highest(lease, "max_over_time("+gauge+"[$__range])") + " - " +
		aggregate("min", lease, "min_over_time("+gauge+"[$__range])")
}

// queue is about what waits for a worker. Only for controllers with a work queue.
func queue() row {
	return row{title: "Queue", panels: []panel{
		graph{
			title: "Depth",
			about: about{
				shows:  "Keys that wait for a worker.",
				normal: "0, and for seconds as many as nodes registered at once.",
				do:     "Growing for minutes: the workers do not keep up. See what they wait for: cloud, limits, API server.",
			},
			unit:  units.Short,
			lines: []line{{sum("name", of("workqueue_depth")), "{{name}}"}},
		}.panel(),
		graph{
			title: "Age of the oldest",
			about: about{
				shows:  "How long the key that has waited longest has waited, and how long the one that has been in work longest has been so.",
				normal: "Below a second; as long as the cloud takes to answer while it is slow.",
				do:     "One key in work for minutes: a call hangs. Look at the cloud's times and the log of the leader.",
				alert:  "CCMQueueStuck",
			},
			unit: units.Seconds,
			lines: []line{
				{highest("name", of("ccm_workqueue_oldest_age_seconds")), "{{name}}: waits"},
				{highest("name", of("workqueue_longest_running_processor_seconds")), "{{name}}: in work"},
			},
			bad: []step{{60, red}},
		}.panel(),
		graph{
			title: "Time in the queue",
			about: about{
				shows:  "How long keys waited before a worker took them. The bounds of the measurement are powers of ten: read the order of magnitude.",
				normal: "Milliseconds.",
				do:     "Seconds: too few workers for the cloud's time to answer, or a limit that is too low.",
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, short, "name", of("workqueue_queue_duration_seconds_bucket")), "{{name}}: half of them"},
				{quantile(0.99, short, "name", of("workqueue_queue_duration_seconds_bucket")), "{{name}}: 99 %"},
			},
		}.panel(),
	}}
}

// apiServer is about the requests to it, and whether its changes still arrive.
func apiServer() row {
	return row{title: "API server", panels: []panel{
		graph{
			title: "Requests by answer",
			about: about{
				shows:  "Requests to the API server per second, by method and status. `<error>` got no answer.",
				normal: "The renewals of the Lease (about one in two seconds), and writes while nodes change. 409 now and then: somebody else wrote first.",
				do:     "401, 403: token or role. 429: it is overloaded, and the limits obey. 5xx, `<error>`: the API server or the way to it.",
				alert:  "CCMAPIServerErrors",
			},
			unit:  units.RequestsPerSecond,
			lines: []line{{sum("method, code", rate(of("rest_client_requests_total"))), "{{method}} {{code}}"}},
		}.panel(),
		graph{
			title: "Time to answer",
			about: about{
				shows:  "From sending a request to the head of its answer: 99 of 100 were faster.",
				normal: "Below 100 ms.",
				do:     "Seconds: the API server or etcd is slow; Leases are in danger.",
			},
			unit:  units.Seconds,
			lines: []line{{quantile(0.99, short, "verb", of("rest_client_request_duration_seconds_bucket")), "{{verb}}"}},
			bad:   []step{{1, red}},
		}.panel(),
		graph{
			title: "Silence of the watch",
			about: about{
				shows:  "For how long the API server has told nothing on the watch, on each replica. It says at least once a minute that there is nothing new.",
				normal: "A saw tooth below a minute.",
				do:     "Rising on one replica: its connection is dead; it lists anew by itself. On all: the API server. The clocks of Prometheus and node count, too.",
				alert:  "CCMWatchStale",
			},
			unit:  units.Seconds,
			lines: []line{{"clamp_min(time() - " + highest("instance, resource", of("ccm_informer_last_event_timestamp_seconds")) + ", 0)", "{{instance}} {{resource}}"}},
			bad:   []step{{300, red}},
		}.panel(),
		graph{
			title: "Lists anew and unreadable objects",
			about: about{
				shows:  "Times that everything was listed anew because the watch could not go on, and objects that could not be read, in five minutes.",
				normal: "0; one list anew when the API server restarts.",
				do:     "Lists anew all the time: the API server drops its history (etcd compaction, overload). Unreadable: the log names the object.",
			},
			unit: units.Short,
			lines: []line{
				{times("resource", "[5m]", of("ccm_informer_relists_total")), "{{resource}}: listed anew"},
				{times("resource", "[5m]", of("ccm_informer_malformed_objects_total")), "{{resource}}: unreadable"},
			},
			wide: 12,
		}.panel(),
		graph{
			title: "Events",
			about: about{
				shows:  "Events written per second, and those that were not, by reason.",
				normal: "One or two for a node that registers; none dropped.",
				do:     "`failed`: the role lacks events, or its namespace. `queue_full`, `spam`: very many nodes complain at once; the log has them all.",
			},
			unit: units.Short,
			lines: []line{
				{sum("", rate(of("ccm_events_sent_total"))), "written"},
				{sum("reason", rate(of("ccm_events_dropped_total"))), "dropped: {{reason}}"},
			},
			wide: 12,
		}.panel(),
	}}
}

// process is about what the program costs, and which one it is.
func process() row {
	return row{title: "Process and build", panels: []panel{
		graph{
			title: "Memory",
			about: about{
				shows:  "Memory held in RAM, by replica.",
				normal: "Constant for a number of nodes.",
				do:     "Growing for hours: keep the process and its log, and report it. Near the limit of the pod: raise it.",
			},
			unit:  units.BytesIEC,
			lines: []line{{highest("instance", of("process_resident_memory_bytes")), "{{instance}}"}},
		}.panel(),
		graph{
			title: "CPU",
			about: about{
				shows:  "Processor time used per second, by replica: 1 is one core.",
				normal: "Below 0.01, more while many nodes register.",
				do:     "At the limit of the pod: renewals of the Lease come late; raise the limit.",
			},
			unit:  "cores",
			lines: []line{{sum("instance", rate(of("process_cpu_seconds_total"))), "{{instance}}"}},
		}.panel(),
		graph{
			title: "Open files",
			about: about{
				shows:  "File descriptors that are open, as a share of the limit; connections count, too.",
				normal: "Below 10 %.",
				do:     "Rising towards 100 %: connections leak. Restart the replica, and report it.",
			},
			unit:  units.PercentUnit,
			lines: []line{{highest("instance", of("process_open_fds")+" / "+of("process_max_fds")), "{{instance}}"}},
			bad:   []step{{0.8, red}},
		}.panel(),
		list{
			title: "Replicas",
			about: about{
				shows:  "What runs where, since when.",
				normal: "One version, but during a roll-out.",
				do:     "Two versions for long: the roll-out hangs; look at the Deployment.",
				alert:  "CCMTargetDown",
			},
			lines: []line{
				{highest("instance, program, version, commit, platform", of("ccm_build_info")), ""},
				{highest("instance", of("process_start_time_seconds")) + " * 1000", ""},
			},
			hidden:  []string{"Value #A"},
			renamed: map[string]string{"instance": "Replica", "program": "Program", "version": "Version", "commit": "Commit", "platform": "Platform", "Value #B": started},
			dates:   []string{started},
			wide:    12,
		}.panel(),
		number{
			title: "Missing rights",
			about: about{
				shows:  "Rights that the program needs and its service account lacks, on the replica that lacks most.",
				normal: "0.",
				do:     "The log and `/readyz?verbose` name them: apply the program's role from `manifests/`. Without them its work fails.",
				alert:  "CCMMissingRights",
			},
			lines: []line{{highest("", of("ccm_missing_rights")), ""}},
			base:  green,
			steps: []step{{1, red}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		strip{
			title: "Configuration file",
			about: about{
				shows:  "Whether the configuration file as it is now is valid, on each replica.",
				normal: "valid",
				do:     "`refused`: the file was changed and is wrong; the old version stays in use. The log and `/readyz?verbose` name the mistake. Mend it before the next restart, which would fail.",
				alert:  "CCMConfigRefused",
			},
			lines: []line{{of("ccm_config_valid"), "{{instance}}"}},
			words: map[string]word{"0": {"refused", red}, "1": {"valid", green}},
			wide:  8,
		}.panel(),
	}}
}

// started is the heading of the column with the start of a process.
const started = "Started"
