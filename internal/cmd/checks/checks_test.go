package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReportSaysWhatFailedAndWhatWasSkipped(t *testing.T) {
	events := `{"Action":"output","Package":"p","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    bad_test.go:1: what is wrong\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestSkip","Output":"=== RUN   TestSkip\n"}
{"Action":"output","Package":"p","Test":"TestSkip","Output":"    need.go:31: Node missing: install it\n"}
{"Action":"output","Package":"p","Test":"TestSkip","Output":"--- SKIP: TestSkip (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestSkip"}
{"Action":"output","Package":"p","Test":"TestCrash","Output":"panic: in a goroutine\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Output":"PASS\n"}
{"Action":"output","Package":"q","Output":"ok  \tq\t0.2s\n"}
{"Action":"pass","Package":"q"}
{"Action":"output","Package":"r","Output":"?   \tr\t[no test files]\n"}
{"Action":"skip","Package":"r"}
{"Action":"build-output","ImportPath":"s","Output":"s.go:1: does not compile\n"}
{"Action":"fail","Package":"s"}
go: says something itself
`
	var out, summary strings.Builder
	r := newResults()
	require.NoError(t, r.read(strings.NewReader(events), &out))
	assert.False(t, r.ok)
	assert.Equal(t, "    bad_test.go:1: what is wrong\nFAIL\tp\t0.1s\npanic: in a goroutine\nok  \tq\t0.2s\n"+
		"s.go:1: does not compile\ngo: says something itself\n", out.String())
	r.print(&summary)
	assert.Equal(t, "\nskipped: Node missing: install it\n    p TestSkip\n\n1 passed, 2 failed, 1 skipped\n", summary.String())
}
