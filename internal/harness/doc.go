// Package harness runs the product from outside, as its users do: it builds examples/everything, starts several processes
// of it that share nothing but a store, puts a round-robin proxy in front, and kills and restarts them.
//
// The tests in test/ and the commands in internal/cmd use it:
//
//	cluster := harness.StartForTest(t, harness.Config{Store: harness.DynamoDB})
//	client.Connect(cluster.URL())  // the proxy: every request goes to the next process
//	cluster.Processes[0].Kill()    // as a platform that takes an instance away
//
// HARNESS_SERVER names another server binary to run instead of examples/everything. It must take the same environment
// variables; the same checks then show what that server does.
package harness
