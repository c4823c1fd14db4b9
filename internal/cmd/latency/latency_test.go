package main

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

// The figures are for people to read; that there are some is for a test.
func TestMeasuresWhatItSays(t *testing.T) {
	st, stop, err := open(t.Context(), harness.Memory)
	require.NoError(t, err)
	defer stop()
	var out bytes.Buffer
	people := []group{{think: time.Millisecond, people: 3}, {think: 20 * time.Millisecond, people: 2}}
	short := watch{settle: 10 * time.Millisecond, observe: 100 * time.Millisecond}
	require.NoError(t, measure(t.Context(), &out, harness.Memory, st, people, 5, short))
	assert.Regexp(t, regexp.MustCompile(`(?m)^ +answers after 1ms +3 +\d+\.\d ms +\d+\.\d ms +\d+\.\d ms`), out.String())
	assert.Regexp(t, regexp.MustCompile(`(?m)^ +answers after 20ms +2 +\d`), out.String())
	for _, cr := range crowds {
		assert.Regexp(t, `(?m)^5 +`+regexp.QuoteMeta(cr.what), out.String())
	}
	assert.ErrorContains(t, run(t.Context(), "paper", false, 0, &out), "paper")
}

func TestCountsOperationsWithinTheirTime(t *testing.T) {
	spent := &tally{}
	from := time.Now()
	spent.add(read, 3)
	spent.add(write, 1)
	spent.add(read, 4)
	operations, records := spent.between(read, from, time.Now().Add(time.Second))
	assert.Equal(t, 2, operations)
	assert.Equal(t, 7, records)
	operations, _ = spent.between(read, time.Now().Add(time.Second), time.Now().Add(time.Minute))
	assert.Zero(t, operations)
}

func TestTheMiddleOfNothingIsNothing(t *testing.T) {
	assert.Zero(t, middle(nil, 0.5))
	assert.Equal(t, 2*time.Second, middle([]time.Duration{3 * time.Second, time.Second, 2 * time.Second}, 0.5))
}
