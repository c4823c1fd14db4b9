package config

import (
	"fmt"
	"os"

	"github.com/hydrant-mcp/hydrant/store"
	"github.com/hydrant-mcp/hydrant/store/faulty"
)

// withFaults makes a store fail as HYDRANT_FAULTS says, for load tests:
//
//	HYDRANT_FAULTS=seed=1,error=0.03,throttle=0.01,lost=0.01,latency=20ms
//
// is a store of whose operations 3 % fail, 1 % are throttled and 1 % happen though they report failure, each after up to 20
// milliseconds. [faulty.Parse] has all of it. Empty, as in every other use of the example, it changes nothing.
func withFaults(st *store.Store, err *error) {
	plan := os.Getenv("HYDRANT_FAULTS")
	if plan == "" || *err != nil {
		return
	}
	p, wrong := faulty.Parse(plan)
	if wrong != nil {
		*err = fmt.Errorf("HYDRANT_FAULTS: %w", wrong)
		return
	}
	*st = faulty.New(p).Wrap(*st)
}
