package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

func init() {
	boards = append(boards, board{
		name:        "node-ccm",
		title:       "Quartet / node-ccm",
		description: "node-ccm initialises new nodes and keeps all nodes in sync with their instances.",
		program:     "node-ccm",
		rows: []row{
			registration(),
			nodeWork(),
			brakeAndOwners(),
			queue(),
			cloudCalls(),
			limits(),
			leadership(),
			apiServer(),
			process(),
			openStack(),
		},
	})
}

// untaint is upstream's histogram: from the creation of a node to the removal of its taint.
const untaint = "node_controller_cloud_provider_taint_removal_delay_seconds"

const stays = "how-to/troubleshoot.md#a-node-keeps-its-taint"

// registration shows the time from a node's registration until it is schedulable.
func registration() row {
	return row{title: "Registration to untaint", panels: []panel{
		number{
			title: "Waiting nodes",
			about: about{
				shows:  "Tainted nodes that node-ccm could not initialise yet: no pods are scheduled there.",
				normal: "0.",
				do:     "See *Waiting nodes by reason*, and the events in `kubectl describe node`.",
				alert:  "NodeCCMManyNodesWaiting",
				page:   stays,
			},
			lines: []line{{orZero(sum("", of("ccm_node_waiting"))), ""}},
			base:  green,
			steps: []step{{1, yellow}, {10, red}},
			high:  8,
		}.panel(),
		number{
			title: "Longest wait",
			about: about{
				shows:  "Age of the oldest node that is not initialised yet.",
				normal: "0.",
				do:     "Minutes: see *Waiting nodes by reason*, and the events in `kubectl describe node`.",
				page:   stays,
				alert:  "NodeCCMNodeWaiting",
			},
			unit:  units.Seconds,
			lines: []line{{highest("", of("ccm_node_oldest_waiting_seconds")), ""}},
			base:  green,
			steps: []step{{60, yellow}, {600, red}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		graph{
			title: "Waiting nodes by reason",
			about: about{
				shows:  "Tainted nodes that are not initialised yet, by reason.",
				normal: "None.",
				do:     "`throttled`: temporary; see row *Rate limits*. `unauthorized`, `forbidden`: fix the credentials. `instance_not_found`: the nodes' names or IDs do not match the cloud's. `node_ip`: fix the kubelet's `--node-ip`. `no_address`: the cloud knows no address of the instance. `api_server`: check the roles and the API server.",
				page:   stays,
			},
			unit:    units.Short,
			lines:   []line{{some(sum("reason", of("ccm_node_waiting"))), "{{reason}}"}},
			stacked: true,
			wide:    8,
		}.panel(),
		graph{
			title: "Time from registration to untaint",
			about: about{
				shows:  "Time from creation to initialisation, for nodes initialised in the last ten minutes: average and 99th percentile. The histogram's bounds are 1, 4, 16, 64, 256 and 1024 s, as upstream; the percentile is between two of them.",
				normal: "Both at most 1 s. Creation times have a resolution of one second.",
				do:     "Above 4 s: see *Waiting nodes by reason*, then the response times of the cloud and of the API server.",
				alert:  "NodeCCMRegistrationTooSlow",
				page:   stays,
			},
			unit: units.Seconds,
			lines: []line{
				{average(long, "", of(untaint+"_sum"), of(untaint+"_count")), "on average"},
				{quantile(0.99, long, "", of(untaint+"_bucket")), "99 %"},
			},
			bad:  []step{{16, red}},
			wide: 8,
		}.panel(),
		graph{
			title: "Nodes by state",
			about: about{
				shows:  "All nodes, as seen by the leader.",
				normal: "All `initialised`.",
				do:     "`instance_gone`: lifecycle-ccm handles these. `unconfirmed`: only a name says which instance is the node's. `foreign`, `not_ours`: nodes of another provider; node-ccm leaves them alone, so another controller must run. `unknown` for minutes: the cloud has not answered about them.",
				page:   "explanation/node-ccm.md",
			},
			unit:    units.Short,
			lines:   []line{{some(sum("state", of("ccm_node_nodes"))), "{{state}}"}},
			stacked: true,
			wide:    12,
		}.panel(),
		graph{
			title: "Nodes initialised",
			about: about{
				shows:  "Nodes whose taint was removed, in five minutes.",
				normal: "As many as the autoscaler or people added.",
				do:     "0 while nodes wait: see *Waiting nodes by reason*, and check that a replica leads.",
			},
			unit: units.Short,
			lines: []line{{
				times("", "[5m]", of(untaint+"_count")), "initialised",
			}},
			wide: 12,
		}.panel(),
	}}
}

// brakeAndOwners shows what node-ccm does not write, and why.
func brakeAndOwners() row {
	return row{title: "Brake and other owners", panels: []panel{
		number{
			title: "Changes held",
			about: about{
				shows:  "Ready nodes whose first InternalIP, address family, zone, region or type the cloud returns differently, and that the brake keeps as they are.",
				normal: "0.",
				do:     "Compare a held node with its instance in the cloud: fix the cloud's answer, or approve.",
				alert:  "NodeCCMChangesHeld",
				page:   "explanation/brakes.md#ready-nodes",
			},
			lines: []line{{highest("", of("ccm_brake_held")), ""}},
			base:  green,
			steps: []step{{1, red}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		graph{
			title: "Budget of the brake",
			about: about{
				shows:  "Ready nodes that have changed within `--node-change-budget-window`, and how many may.",
				normal: "Far below the limit.",
				do:     "At the limit: the rest is held until the window moves on; see *Changes held*.",
				page:   "explanation/brakes.md#ready-nodes",
			},
			unit: units.Short,
			lines: []line{
				{highest("", of("ccm_brake_used")), "changed"},
				{highest("", of("ccm_brake_limit")), "allowed"},
			},
			wide: 10,
		}.panel(),
		graph{
			title: "Contested fields",
			about: about{
				shows:  "Corrections in half an hour that another writer had undone repeatedly, by field.",
				normal: "None.",
				do:     "The event `RepeatedWrite` on the node names the field and both values. Stop the other writer, or set `--node-label-policy`.",
				alert:  "CCMRepeatedWrites",
				page:   "explanation/node-ccm.md#two-owners-of-a-field",
			},
			unit:  units.Short,
			lines: []line{{times("write", "[30m]", of("ccm_repeated_writes_total")), "{{write}}"}},
			wide:  10,
		}.panel(),
		graph{
			title: "Irregular nodes",
			about: about{
				shows:  "Initialised nodes with a problem that node-ccm does not fix, at the last refresh. `left over`: nodes with a taint that nothing removes.",
				normal: "None.",
				do:     "The runbook of the alert says what to do for each problem; the events on the nodes have the details.",
				alert:  "NodeCCMIrregularNodes",
				page:   "explanation/node-ccm.md",
			},
			unit: units.Short,
			lines: []line{
				{sum("problem", of("ccm_node_irregular_nodes")), "{{problem}}"},
				{sum("taint", of("ccm_left_over_taints")), "left over: {{taint}}"},
			},
			wide: 24,
		}.panel(),
	}}
}

// nodeWork shows the reconciliation of nodes.
func nodeWork() row {
	return row{title: "Reconcile: rate, errors, latency", panels: []panel{
		graph{
			title: "Reconciles",
			about: about{
				shows:  "Nodes that a worker processed, per second, and nodes that were queued again after a failure or by plan.",
				normal: "Almost none: unchanged nodes cause no work.",
				do:     "Constantly more: a client changes nodes all the time, or reconciles fail and are retried. The log of the leader names the nodes.",
			},
			unit: "nodes/s",
			lines: []line{
				{sum("", rate(of("workqueue_work_duration_seconds_count"))), "processed"},
				{sum("", rate(of("workqueue_retries_total"))), "retried"},
			},
		}.panel(),
		graph{
			title: "Time of a reconcile",
			about: about{
				shows:  "Time to process a node, including the cloud's answer. The histogram's bounds are powers of ten: read the order of magnitude.",
				normal: "Below a second.",
				do:     "Longer: check the response times of the cloud and of the API server.",
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.5, short, "", of("workqueue_work_duration_seconds_bucket")), "half of them"},
				{quantile(0.99, short, "", of("workqueue_work_duration_seconds_bucket")), "99 %"},
			},
		}.panel(),
		graph{
			title: "Writes to nodes",
			about: about{
				shows:  "Writes per second, by kind and result.",
				normal: "Two for each new node, all `ok`. An occasional `conflict`: another client wrote first, and node-ccm plans the node again.",
				do:     "`forbidden`: check the ClusterRole. `invalid`: the API server rejects a value from the cloud; the event on the node has the message.",
				page:   "reference/rights.md#node-ccm",
			},
			unit:  units.Short,
			lines: []line{{sum("kind, result", rate(of("ccm_node_writes_total"))), "{{kind}}: {{result}}"}},
		}.panel(),
		graph{
			title: "Answers about nodes",
			about: about{
				shows:  "Answers of the cloud about single nodes, per second.",
				normal: "`found`.",
				do:     "`gone` for nodes that exist: wrong project or region in the credentials. Errors: see row *Calls to the cloud*.",
			},
			unit:  units.Short,
			lines: []line{{sum("answer", rate(of("ccm_node_answers_total"))), "{{answer}}"}},
		}.panel(),
		graph{
			title: "Lookups of all nodes",
			about: about{
				shows:  "Lookups of all nodes in 15 minutes, by result. node-ccm compares addresses and labels with the answers.",
				normal: "Three in 15 minutes, `ok`.",
				do:     "Errors: see row *Calls to the cloud*. Nodes keep their old addresses until a lookup succeeds.",
			},
			unit:  units.Short,
			lines: []line{{times("result", "[15m]", of("ccm_node_refreshes_total")), "{{result}}"}},
		}.panel(),
		graph{
			title: "Nodes that differ from the cloud",
			about: about{
				shows:  "Initialised nodes that differed from their instance in the last lookup of all nodes.",
				normal: "0; a few when instances change.",
				do:     "The same number with each lookup: another client (another cloud controller?) reverts the values, or writes fail.",
			},
			unit:  units.Short,
			lines: []line{{sum("", of("ccm_node_refresh_differing")), "differ"}},
		}.panel(),
		graph{
			title: "Corrections that wait",
			about: about{
				shows:  "Initialised nodes that differ from their instance and wait for their turn: they are written at `--node-correction-qps`, so that a change of the whole fleet does not delay new nodes.",
				normal: "0; after a change of many instances falling at that rate.",
				do:     "Constantly high: something changes many nodes again and again; see *Nodes that differ from the cloud*. Not falling: `--node-correction-qps` is very low.",
				page:   "explanation/rate-limits.md",
			},
			unit:  units.Short,
			lines: []line{{sum("", of("ccm_node_corrections_waiting")), "wait"}},
			wide:  12,
		}.panel(),
		graph{
			title: "Nodes per lookup",
			about: about{
				shows:  "Maximum number of nodes in one lookup, on the leader.",
				normal: "500.",
				do:     "Lower: the cloud did not answer larger lookups within `--cloud-call-timeout`. It grows again when the cloud is faster; see the response times in *Calls to the cloud*.",
				page:   "explanation/rate-limits.md",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_node_lookup_batch_limit")), "at most"}},
			wide:  12,
		}.panel(),
		graph{
			title: "Dropped labels, changed InternalIPs, provider IDs",
			about: about{
				shows:  "In an hour: labels from the cloud that were dropped, by reason; changes of the first InternalIP of Ready nodes, applied or held; nodes whose provider ID nothing confirms, held or only reported.",
				normal: "None.",
				do:     "`invalid`: the cloud's value is not a valid label value; the event names it. A changed InternalIP breaks connections of a running node: find the change of the instance's network. `--node-internal-ip-change=hold` keeps the old address. A held provider ID: the node's event `ProviderIDUnconfirmed` says why.",
				page:   "explanation/node-ccm.md",
			},
			unit: units.Short,
			lines: []line{
				{some(times("reason", "[1h]", of("ccm_node_label_drops_total"))), "label: {{reason}}"},
				{some(times("result", "[1h]", of("ccm_node_internal_ip_changes_total"))), "InternalIP: {{result}}"},
				{some(times("result", "[1h]", of("ccm_node_unconfirmed_identities_total"))), "provider ID unconfirmed: {{result}}"},
			},
			wide: 24,
		}.panel(),
	}}
}
