package main

import "github.com/grafana/grafana-foundation-sdk/go/units"

func init() {
	boards = append(boards, board{
		name:        "service-ccm",
		title:       "Quartet / service-ccm",
		description: "service-ccm gives Services of type LoadBalancer their load balancers, and keeps the members of these in line with the nodes.",
		program:     "service-ccm",
		rows: []row{
			balancers(),
			balancerMembers(),
			queue(),
			cloudCalls(),
			limits(),
			leadership(),
			apiServer(),
			process(),
		},
	})
}

const services = "explanation/service-ccm.md"

// balancers shows the states of load balancers and the operations on them.
func balancers() row {
	return row{title: "Load balancers", panels: []panel{
		number{
			title: "Failing",
			about: about{
				shows:  "Load balancers whose last call to the cloud failed, that have failed in the cloud, or whose Service has a mistake.",
				normal: "0",
				do:     "The condition LoadBalancerProvisioning of the Service says why.",
				alert:  "ServiceCCMLoadBalancersFailing",
				page:   "reference/conditions.md#services",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_service_load_balancers", `state="failing"`)), ""}},
			base:  green,
			steps: []step{{1, red}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		number{
			title: "Orphans",
			about: about{
				shows:  "Load balancers of this cluster without a Service, as of the last list.",
				normal: "0",
				do:     "The log of service-ccm names them. Delete in the cloud what nothing uses.",
				alert:  "ServiceCCMOrphans",
				page:   services + "#audit",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_service_orphans")), ""}},
			base:  green,
			steps: []step{{1, yellow}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		number{
			title: "Refused answers",
			about: about{
				shows:  "Services of which an address, host name or annotation that the provider gives is not shown, or should not be.",
				normal: "0",
				do:     "The line shown of /readyz?verbose has an example. Correct the provider, or allow it: --load-balancer-allowed-addresses, --provider-annotation-prefixes.",
				alert:  "ServiceCCMRefusedParts",
				page:   services + "#what-the-provider-may-show",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_service_refused_parts")), ""}},
			base:  green,
			steps: []step{{1, yellow}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		number{
			title: "Held releases",
			about: about{
				shows:  "Load balancers of Services that the settings exclude. They stay and follow the nodes until a person approves that they go.",
				normal: "0",
				do:     "Serve their class again, or approve: the event LoadBalancerReleaseHeld of the Service has the annotation.",
				alert:  "ServiceCCMReleasesHeld",
				page:   services + "#which-services",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_service_releases_held")), ""}},
			base:  green,
			steps: []step{{1, yellow}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		number{
			title: "Held replacements",
			about: about{
				shows:  "Load balancers that are gone or have failed, and are not replaced before that is proved or a person approves.",
				normal: "0",
				do:     "Look whether service-ccm is in the right project and region of the cloud. The event LoadBalancerReplacementHeld has the answer of the cloud and the annotation that approves.",
				alert:  "ServiceCCMReplacementsHeld",
				page:   "explanation/brakes.md#lost-load-balancers",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_service_replacements_held")), ""}},
			base:  green,
			steps: []step{{1, red}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		number{
			title: "Unclaimed finalizers",
			about: about{
				shows:  "Services that are not of the type LoadBalancer any more, keep the finalizer of load balancers, and show no controller that should remove it.",
				normal: "0",
				do:     "The event UnclaimedFinalizer of the Service has the command.",
				alert:  "ServiceCCMUnclaimedFinalizers",
				page:   services + "#which-services",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_service_unclaimed_finalizers")), ""}},
			base:  green,
			steps: []step{{1, yellow}},
			none:  "no replica is seen",
			high:  8,
		}.panel(),
		graph{
			title: "Load balancers gone, addresses changed",
			about: about{
				shows:  "In five minutes: load balancers that are not in the cloud any more without an order of service-ccm, and Services that got another address.",
				normal: "None.",
				do:     "The events `LoadBalancerGone` and `LoadBalancerAddressChanged` name the Services. Change what has the old address.",
				alert:  "ServiceCCMAddressesChanged",
				page:   "reference/events.md#services",
			},
			wide: 6,
			unit: units.Short,
			lines: []line{
				{times("", "[5m]", of("ccm_service_load_balancers_gone_total")), "gone"},
				{times("", "[5m]", of("ccm_service_address_changes_total")), "address changed"},
			},
		}.panel(),
		graph{
			title: "Load balancers by state",
			wide:  6,
			about: about{
				shows:  "Services of type LoadBalancer by the state of their load balancer, on the leader.",
				normal: "`provisioned`, and `pending` after changes.",
				do:     "`failing`: see the conditions of the Services. `pending` for long: the cloud takes its time; the condition of the Service says on what it works.",
				page:   services,
			},
			unit:    units.Short,
			lines:   []line{{sum("state", of("ccm_service_load_balancers")), "{{state}}"}},
			stacked: true,
		}.panel(),
		graph{
			title: "Operations",
			wide:  6,
			about: about{
				shows:  "Results of cloud operations about single load balancers in five minutes.",
				normal: "`done`, and `in_progress` while the cloud works.",
				do:     "Others are kinds of errors of the cloud: see its message in the events of the Services.",
				page:   services,
			},
			unit:  units.Short,
			lines: []line{{some(times("operation, result", "[5m]", of("ccm_service_operations_total"))), "{{operation}} {{result}}"}},
		}.panel(),
		graph{
			title: "Time to an address",
			wide:  6,
			about: about{
				shows:  "Time from the creation of a Service to its address: the slowest of a hundred and the median.",
				normal: "What the cloud needs to create a load balancer, and two seconds.",
				do:     "Look at *Cloud calls* and *Rate limits*.",
				page:   services,
			},
			unit: units.Seconds,
			lines: []line{
				{quantile(0.99, long, "", of("ccm_service_provisioning_seconds_bucket")), "p99"},
				{quantile(0.5, long, "", of("ccm_service_provisioning_seconds_bucket")), "median"},
			},
		}.panel(),
		graph{
			title: "Writes to Services",
			about: about{
				shows:  "Writes to Services in five minutes, by kind and result.",
				normal: "Two for a new Service (`protect`, `status`), one for a deleted one (`release`).",
				do:     "`conflict`: others write the same Service. `forbidden`: the ClusterRole is too small.",
				page:   services,
			},
			wide:  12,
			unit:  units.Short,
			lines: []line{{some(times("kind, result", "[5m]", of("ccm_service_writes_total"))), "{{kind}} {{result}}"}},
		}.panel(),
		graph{
			title: "Lists of the cloud's load balancers",
			about: about{
				shows:  "Lists of this cluster's load balancers in five minutes, by result.",
				normal: "One, `ok`.",
				do:     "While lists fail, load balancers that were changed or deleted in the cloud are not repaired. See `/readyz?verbose`.",
				alert:  "ServiceCCMAuditsFailing",
				page:   services + "#audit",
			},
			wide:  12,
			unit:  units.Short,
			lines: []line{{some(times("result", "[5m]", of("ccm_service_audits_total"))), "{{result}}"}},
		}.panel(),
	}}
}

// balancerMembers shows how load balancers follow the nodes.
func balancerMembers() row {
	return row{title: "Members", panels: []panel{
		number{
			title: "Held members",
			about: about{
				shows:  "Members that stay although their nodes are gone or changed, because too many did at once.",
				normal: "0",
				do:     "Check that the nodes are really gone, then approve.",
				alert:  "ServiceCCMMembersHeld",
				page:   services + "#members",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_service_members_held")), ""}},
			base:  green,
			steps: []step{{1, red}},
			none:  "no replica is seen",
			wide:  8,
			high:  8,
		}.panel(),
		graph{
			title: "Eligible nodes",
			about: about{
				shows:  "Nodes that can be members of load balancers, on the leader.",
				normal: "All nodes but those with the exclusion label and those marked for scale-down.",
				do:     "Fewer: see `kubectl get nodes`, and whether node-ccm initialises them.",
				page:   services + "#members",
			},
			unit:  units.Short,
			lines: []line{{highest("", of("ccm_service_eligible_nodes")), "nodes"}},
		}.panel(),
		graph{
			title: "Changes of members",
			about: about{
				shows:  "Changes of the members of load balancers in five minutes, and those that failed.",
				normal: "One for each load balancer after each change of the nodes.",
				do:     "Failures: see the events UpdateLoadBalancerFailed.",
				page:   services + "#members",
			},
			unit: units.Short,
			lines: []line{
				{times("", "[5m]", of("service_controller_loadbalancer_sync_total")), "changes"},
				{times("", "[5m]", of("service_controller_nodesync_error_total")), "failed"},
			},
		}.panel(),
		graph{
			title: "Time to pass a change of nodes on",
			about: about{
				shows:  "Time from a change of the set of nodes to the end of a call that passes it on, and the duration of these calls (p99).",
				normal: "Seconds.",
				do:     "Look at *Cloud calls* and *Rate limits*.",
				page:   services + "#members",
			},
			wide: 24,
			unit: units.Seconds,
			lines: []line{
				{quantile(0.99, long, "", of("service_controller_nodesync_latency_seconds_bucket")), "from the change"},
				{quantile(0.99, long, "", of("service_controller_update_loadbalancer_host_latency_seconds_bucket")), "call"},
			},
		}.panel(),
	}}
}
