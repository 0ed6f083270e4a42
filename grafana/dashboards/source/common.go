package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

// leadership shows which replica leads, and whether a standby could take over.
func leadership() row {
	return row{title: "Leadership and failover", panels: []panel{
		strip{
			title: "Leader over time",
			about: about{
				shows:  "Each replica over time: leader or standby. A replica that has ended has no colour.",
				normal: "Exactly one replica leads. After a graceful end the next one leads within a second, after a crash within 15 s (`--leader-elect-lease-duration`).",
				do:     "No leader: read the log of a standby and see *Failed attempts at the Lease*. Frequent changes: the API server is slow, or the replica lacks CPU.",
				alert:  "CCMNoLeader",
			},
			lines: []line{{of("leader_election_master_status"), "{{instance}}"}},
			words: map[string]word{"0": {"standby", grey}, "1": {"leads", green}},
			wide:  10,
		}.panel(),
		number{
			title: "Leader changes",
			about: about{
				shows:  "Leader changes in the displayed time range (`leaseTransitions` of the Lease).",
				normal: "One or two for each rollout or node drain.",
				do:     "More than that: each change restarts the controller. Find out why leaders end: log, restarts, *Time of a renewal*.",
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
				shows:  "Remaining term of the leader just before each renewal. At 0 the leader must stop working, and its process ends.",
				normal: "The renew deadline minus the retry period: 8 s of 10 s.",
				do:     "Falling: renewals fail or are slow. See *Failed attempts at the Lease* and the API server.",
			},
			unit:  units.Seconds,
			lines: []line{{of("ccm_leader_election_term_remaining_seconds") + " > 0", "{{instance}}"}},
			bad:   []step{{2, red}},
			wide:  10,
		}.panel(),
		graph{
			title: "Time of a renewal",
			about: about{
				shows:  "Duration of a Lease renewal: median and 99th percentile.",
				normal: "About 10 ms.",
				do:     "Above a second: the API server or etcd is slow, for all clients. Attempts time out after 5 s.",
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
				normal: "None, except a `conflict` when two candidates compete.",
				do:     "`forbidden` or `unauthorized`: fix the Role for Leases in its namespace. `timeout` or `unavailable`: check the API server.",
			},
			unit:  units.Short,
			lines: []line{{sum("reason", rate(of("ccm_leader_election_failures_total"))), "{{reason}}"}},
			wide:  12,
		}.panel(),
		graph{
			title: "Lease of another program",
			about: about{
				shows:  "Replicas that find another program's name in their Lease: 1 for yes.",
				normal: "0.",
				do:     "1: two programs use one Lease, so one of them never works. Give each its own `--leader-elect-resource-name`.",
				alert:  "CCMLeaseShared",
			},
			unit:  units.Short,
			lines: []line{{of("ccm_leader_election_lease_of_other_program"), "{{instance}}"}},
			bad:   []step{{1, red}},
			wide:  12,
		}.panel(),
		graph{
			title: "Other cloud controllers",
			about: about{
				shows:  "Leases in kube-system that other cloud controllers renew, as the leader sees it.",
				normal: "0. Beside a Go program that does other work: 1.",
				do:     "Switch this program's part off there, or end it. The line `rivals` of `/readyz?verbose` names it.",
				alert:  "CCMOtherCloudController",
			},
			unit:  units.Short,
			lines: []line{{of("ccm_rivals"), "{{instance}}"}},
			bad:   []step{{1, yellow}},
			wide:  12,
		}.panel(),
		graph{
			title: "Admission policy",
			about: about{
				shows:  "Whether the admission policy of the program's account is installed (1) on each replica, and the writes per second that it refuses.",
				normal: "Installed 1, refused 0. Without policies: 0 and 0.",
				do:     "The line `admission-policy` of `/readyz?verbose` names the file to apply.",
				alert:  "CCMMissingRights",
			},
			unit: units.Short,
			lines: []line{
				{of("ccm_admission_policy_installed"), "installed: {{instance}}"},
				{sum("", rate(of("ccm_admission_policy_refusals_total"))), "refused"},
			},
			wide: 12,
		}.panel(),
		graph{
			title: "Clock",
			about: about{
				shows:  "By how many seconds each replica's clock is ahead of the API server's, or behind it, at least.",
				normal: "0.",
				do:     "Synchronise both clocks. The term of leadership does not depend on them.",
				alert:  "CCMClockDiffers",
			},
			unit:  units.Seconds,
			lines: []line{{of("ccm_apiserver_clock_difference_seconds"), "{{instance}}"}},
			wide:  12,
		}.panel(),
		graph{
			title: "Another cloud",
			about: about{
				shows:  "Whether the cloud is another project, region or URL than the one on the Lease: 1 for yes.",
				normal: "0.",
				do:     "1: nothing is changed. Correct the credentials, or approve the new cloud.",
				alert:  "CCMCloudChanged",
			},
			unit:  units.Short,
			lines: []line{{of("ccm_cloud_identity_changed"), "{{instance}}"}},
			bad:   []step{{1, red}},
			wide:  12,
		}.panel(),
		graph{
			title: "Cloud without encryption",
			about: about{
				shows:  "Whether the cloud, or the provider on another machine, is asked by http://: 1 for yes.",
				normal: "0.",
				do:     "1: credentials and answers can be read and changed on the way. Use https://. The line `encryption` of `/readyz?verbose` names the URL.",
			},
			unit:  units.Short,
			lines: []line{{of("ccm_cloud_in_clear"), "{{instance}}"}},
			bad:   []step{{1, yellow}},
			wide:  12,
		}.panel(),
	}}
}

// changes is the increase of a counter that all replicas of one Lease report.
func changes(gauge string) string {
	const lease = "cluster, namespace, name"
	return highest(lease, "max_over_time("+gauge+"[$__range])") + " - " +
		aggregate("min", lease, "min_over_time("+gauge+"[$__range])")
}

// queue shows the work queue, for controllers that have one.
func queue() row {
	return row{title: "Queue", panels: []panel{
		graph{
			title: "Depth",
			about: about{
				shows:  "Keys that wait for a worker.",
				normal: "0; for some seconds as many as nodes that registered at once.",
				do:     "Growing for minutes: the workers do not keep up. Check the cloud, the rate limits and the API server.",
			},
			unit:  units.Short,
			lines: []line{{sum("name", of("workqueue_depth")), "{{name}}"}},
		}.panel(),
		graph{
			title: "Age of the oldest",
			about: about{
				shows:  "Age of the oldest waiting key, and of the oldest key in processing.",
				normal: "Below a second; with a slow cloud, the cloud's response time.",
				do:     "A key in processing for minutes: a call hangs. Check the cloud's response times and the log of the leader.",
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
				shows:  "Time that keys waited for a worker. The histogram's bounds are powers of ten: read the order of magnitude.",
				normal: "Milliseconds.",
				do:     "Seconds: too few workers for the cloud's response time, or a rate limit that is too low.",
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, short, "name", of("workqueue_queue_duration_seconds_bucket")), "{{name}}: half of them"},
				{quantile(0.99, short, "name", of("workqueue_queue_duration_seconds_bucket")), "{{name}}: 99 %"},
			},
		}.panel(),
	}}
}

// apiServer shows requests, watches and events.
func apiServer() row {
	return row{title: "API server", panels: []panel{
		graph{
			title: "Requests by answer",
			about: about{
				shows:  "Requests to the API server per second, by method and status. `<error>` means no answer.",
				normal: "The renewals of the Lease (about one in two seconds), and writes while nodes change. An occasional 409: another client wrote first.",
				do:     "401, 403: check token and role. 429: the API server is overloaded, and the controller slows down. 5xx, `<error>`: check the API server and the network path to it.",
				alert:  "CCMAPIServerErrors",
			},
			unit:  units.RequestsPerSecond,
			lines: []line{{sum("method, code", rate(of("rest_client_requests_total"))), "{{method}} {{code}}"}},
		}.panel(),
		graph{
			title: "Time to answer",
			about: about{
				shows:  "Time from sending a request to the head of its answer, 99th percentile.",
				normal: "Below 100 ms.",
				do:     "Seconds: the API server or etcd is slow. Leases may be lost.",
			},
			unit:  units.Seconds,
			lines: []line{{quantile(0.99, short, "verb", of("rest_client_request_duration_seconds_bucket")), "{{verb}}"}},
			bad:   []step{{1, red}},
		}.panel(),
		graph{
			title: "Silence of the watch",
			about: about{
				shows:  "Time since the watch was last known to work, by replica.",
				normal: "A sawtooth below 45 s.",
				do:     "Rising: the watch does not work; the line `nodes` of `/readyz?verbose` says why. The replica cannot lead. A clock difference between Prometheus and the node adds to this value.",
				alert:  "CCMWatchStale",
			},
			unit:  units.Seconds,
			lines: []line{{"clamp_min(time() - " + highest("instance, resource", of("ccm_informer_last_event_timestamp_seconds")) + ", 0)", "{{instance}} {{resource}}"}},
			bad:   []step{{60, red}},
		}.panel(),
		graph{
			title: "Relists and unreadable objects",
			about: about{
				shows:  "Relists because a watch could not continue, and objects that could not be read, in five minutes.",
				normal: "0; one relist when the API server restarts.",
				do:     "Constant relists: the API server drops its history (etcd compaction, overload). Unreadable: the log names the object.",
			},
			unit: units.Short,
			lines: []line{
				{times("resource", "[5m]", of("ccm_informer_relists_total")), "{{resource}}: relists"},
				{times("resource", "[5m]", of("ccm_informer_malformed_objects_total")), "{{resource}}: unreadable"},
			},
			wide: 12,
		}.panel(),
		graph{
			title: "Events",
			about: about{
				shows:  "Events written per second, and dropped events by reason.",
				normal: "One or two for a node that registers; none dropped.",
				do:     "`failed`: the Role for events is missing, or is in another namespace. `queue_full`, `spam`: very many nodes report problems at once; the log has all of them.",
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

// process shows the resources and the version of the program.
func process() row {
	return row{title: "Process and build", panels: []panel{
		graph{
			title: "Memory",
			about: about{
				shows:  "Resident memory, by replica.",
				normal: "Constant for a given number of nodes.",
				do:     "Growing for hours: do not restart the process, save its log, and report it. Near the pod's memory limit: raise the limit.",
			},
			unit:  units.BytesIEC,
			lines: []line{{highest("instance", of("process_resident_memory_bytes")), "{{instance}}"}},
		}.panel(),
		graph{
			title: "CPU",
			about: about{
				shows:  "CPU use by replica: 1 is one core.",
				normal: "Below 0.01, more while many nodes register.",
				do:     "At the pod's CPU limit: Lease renewals are delayed; raise the limit.",
			},
			unit:  "cores",
			lines: []line{{sum("instance", rate(of("process_cpu_seconds_total"))), "{{instance}}"}},
		}.panel(),
		graph{
			title: "Open files",
			about: about{
				shows:  "Open file descriptors, including connections, as a share of the limit.",
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
				shows:  "Version and start time of each replica.",
				normal: "One version, except during a rollout.",
				do:     "Two versions for a long time: the rollout hangs. Check the Deployment.",
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
				shows:  "Required rights that the service account lacks (maximum over the replicas).",
				normal: "0.",
				do:     "The log and `/readyz?verbose` name the rights. Apply the program's roles from `manifests/`. Without these rights its work fails.",
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
				shows:  "Whether the current configuration file is valid, on each replica.",
				normal: "valid",
				do:     "`refused`: the changed file is invalid; the old version stays in use. The log and `/readyz?verbose` name the problem. Fix the file before the next restart, which would fail.",
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
