package main

import (
	"context"
	"fmt"

	"github.com/hydrant-mcp/hydrant/internal/cmd/fuzz/targets"
)

// fuzz runs every fuzz target for a while.
func fuzz(ctx context.Context, root, duration string) (ok bool, err error) {
	all, err := targets.Find(root)
	if err != nil {
		return false, err
	}
	ok = true
	for _, t := range all {
		r, err := t.Run(ctx, root, duration)
		switch {
		case err != nil:
			return false, err
		case r.OK:
			fmt.Printf("ok  \t%s %s for %s\n", t.Dir, t.Name, duration)
		default:
			ok = false
			fmt.Printf("%s\nFAIL\t%s %s\n", r.Output, t.Dir, t.Name)
		}
	}
	return ok, ctx.Err()
}
