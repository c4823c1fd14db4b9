// Package deploy checks what the repository deploys, with the tools that its users have: cfn-lint and SAM on template.yaml,
// Compose on compose.yaml, and a builder of container images on the Dockerfile. A tool that is missing is skipped, with
// how to get it; with REQUIRE=all it fails.
//
// Nothing here needs a cloud, an account or a registry.
package deploy
