// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#pragma once

#include "CoreMinimal.h"
#include "Subsystems/WorldSubsystem.h"

#include <memory>

#include "SuperSLMSubsystem.generated.h"

namespace game
{
class Cast;
}

// Characters that speak, a slice of language in every tick of the world. The cast is the one of
// plugin_host/job_system.
UCLASS()
class SUPERSLMGAME_API USuperSLMSubsystem : public UTickableWorldSubsystem
{
	GENERATED_BODY()

public:
	USuperSLMSubsystem();
	virtual ~USuperSLMSubsystem() override;

	// Maps the artifact and reads what all characters know. False after a refusal; the log says why.
	UFUNCTION(BlueprintCallable, Category = "SuperSLM")
	bool Open(const FString& Path, const FString& World, int32 Characters, float BudgetMilliseconds = 1.0f);

	// Queues a line; the character answers some frames later.
	UFUNCTION(BlueprintCallable, Category = "SuperSLM")
	bool Say(int32 Who, const FString& Persona, const FString& Line);

	// What a character has said so far.
	UFUNCTION(BlueprintPure, Category = "SuperSLM")
	FString Text(int32 Who) const;

	virtual void Tick(float DeltaTime) override;
	virtual TStatId GetStatId() const override;
	virtual void Deinitialize() override;

private:
	TArray64<uint8> Artifact; // used in place while the cast lives
	std::unique_ptr<game::Cast> Cast;
};
