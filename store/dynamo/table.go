package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// tableWait is how long a new table may take to become active.
const tableWait = 2 * time.Minute

// CreateTable makes the table that a [Store] needs, if there is none of that name, and waits until it can be used:
// on-demand billing, time to live on. It is for local use and for tests; in the cloud the table belongs to the
// deployment. An emulator that has no time to live is good enough: it only keeps what has expired, which a Store does not
// mind.
func CreateTable(ctx context.Context, client *dynamodb.Client, table string) error {
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   &table,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(attrPK), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(attrSK), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(attrPK), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(attrSK), KeyType: types.KeyTypeRange},
		},
	})
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return fmt.Errorf("dynamo: create table %q: %w", table, err)
	}
	waiter := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 100*time.Millisecond, 2*time.Second
	})
	if err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table}, tableWait); err != nil {
		return fmt.Errorf("dynamo: wait for table %q: %w", table, err)
	}
	if err := enableTTL(ctx, client, table); err != nil {
		return fmt.Errorf("dynamo: set the time to live of table %q: %w", table, err)
	}
	return nil
}

func enableTTL(ctx context.Context, client *dynamodb.Client, table string) error {
	out, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	if err != nil {
		return ignoreUnknownOperation(err)
	}
	if ttl := out.TimeToLiveDescription; ttl != nil {
		switch ttl.TimeToLiveStatus {
		case types.TimeToLiveStatusEnabled, types.TimeToLiveStatusEnabling:
			return nil
		}
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(attrTTL),
			Enabled:       aws.Bool(true),
		},
	})
	return ignoreUnknownOperation(err)
}

// ignoreUnknownOperation passes over what an emulator does not implement.
func ignoreUnknownOperation(err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorCode() == "UnknownOperationException" {
		return nil
	}
	return err
}
