package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/hydrant-mcp/hydrant/internal/harness"
	"github.com/hydrant-mcp/hydrant/internal/lambdafront"
)

// A target is what the suite runs against.
type target struct {
	what, url string
	cluster   *harness.Cluster // nil for a function
	stop      func()
	dead      func() string // says what did not live through the suite, "" if nothing
}

// start starts the processes, as HTTP servers or as a Lambda function behind one of its front doors.
func start(ctx context.Context, cfg harness.Config, front string, streaming bool) (*target, error) {
	if front != "" {
		return startFunction(ctx, cfg, lambdafront.Source(front), streaming)
	}
	cluster, err := harness.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &target{
		what: fmt.Sprintf("%d processes of examples/everything", cfg.Instances), url: cluster.URL(), cluster: cluster,
		stop: cluster.Stop,
		dead: func() string {
			for i, p := range cluster.Processes {
				if !p.Running() {
					return fmt.Sprintf("instance %d did not live through it", i+1)
				}
			}
			return ""
		},
	}, nil
}

func startFunction(ctx context.Context, cfg harness.Config, source lambdafront.Source, streaming bool) (*target, error) {
	env, err := harness.Environment(cfg, filepath.Join(cfg.Dir, "tally"))
	if err != nil {
		return nil, err
	}
	bootstrap, err := lambdafront.Build(ctx, "./examples/everything/lambda", false)
	if err != nil {
		return nil, err
	}
	f, err := lambdafront.Start(ctx, lambdafront.Config{
		Bootstrap: bootstrap, Env: env, Source: source, Streaming: streaming, Instances: cfg.Instances, Dir: cfg.Dir,
	})
	if err != nil {
		return nil, err
	}
	how := "buffered"
	if streaming {
		how = "streaming"
	}
	return &target{
		what: fmt.Sprintf("a Lambda function of %d processes and more, %s, by %s events,", cfg.Instances, how, source),
		url:  f.URL(), stop: f.Stop, dead: func() string { return "" },
	}, nil
}
