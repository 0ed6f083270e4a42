package main

import (
	"fmt"
	"strings"
)

// The label matchers of every query. The label `cluster` and the label `namespace` may be
// missing: their variables stand for `.*` then, which matches a missing label, too.
const (
	somewhere = `cluster=~"$cluster",namespace=~"$namespace"`
	processes = somewhere + `,job=~"$job",instance=~"$instance"`
)

// identity holds the labels that identify a process.
const identity = "cluster, namespace, job, instance"

// of is a metric of the processes that the dashboard is about.
func of(metric string, matchers ...string) string {
	return selector(metric, processes, matchers)
}

// anywhere is a metric of all controllers of the chosen clusters.
func anywhere(metric string, matchers ...string) string {
	return selector(metric, somewhere, matchers)
}

func selector(metric, scope string, matchers []string) string {
	return metric + "{" + strings.Join(append([]string{scope}, matchers...), ",") + "}"
}

// rate is how often per second, on average since the previous point.
func rate(selector string) string {
	return "rate(" + selector + "[$__rate_interval])"
}

func sum(by, expression string) string {
	return aggregate("sum", by, expression)
}

func highest(by, expression string) string {
	return aggregate("max", by, expression)
}

func aggregate(how, by, expression string) string {
	if by == "" {
		return how + "(" + expression + ")"
	}
	return fmt.Sprintf("%s by (%s) (%s)", how, by, expression)
}

// Windows for rare events: over a single point there would be gaps and single dots.
const (
	short = "[5m]"
	long  = "[10m]"
)

// quantile of a histogram over a window, given the selector of its buckets, kept apart by
// these labels.
func quantile(q float64, window, by, buckets string) string {
	return quantileOf(q, by, "rate("+buckets+window+")")
}

// average of a histogram over a window. It is exact, while a quantile is between two bounds.
func average(window, by string, total, count string) string {
	return sum(by, "rate("+total+window+")") + " / " + sum(by, "rate("+count+window+")")
}

func quantileOf(q float64, by, rates string) string {
	labels := "le"
	if by != "" {
		labels += ", " + by
	}
	return fmt.Sprintf("histogram_quantile(%g, %s)", q, sum(labels, rates))
}

// named adds to each series of `expression` the label `program` of its process.
func named(expression string) string {
	info := highest(identity+", program", anywhere("ccm_build_info"))
	return fmt.Sprintf("%s * on (%s) group_left (program) %s", expression, identity, info)
}

// times is how often something happened in a window, as a whole number: Prometheus
// stretches what it has counted to the edges of the window.
func times(by, window, counter string) string {
	return "round(" + sum(by, "increase("+counter+window+")") + ")"
}

// some drops series with the value zero.
func some(expression string) string {
	return expression + " > 0"
}

// orZero is for metrics without a series until the first event.
func orZero(expression string) string {
	return expression + " or vector(0)"
}
