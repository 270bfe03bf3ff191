// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors
#include "SuperSLMSubsystem.h"

#include "Async/ParallelFor.h"
#include "Misc/FileHelper.h"
#include "Modules/ModuleManager.h"

#include "cast.hpp"

IMPLEMENT_MODULE(FDefaultModuleImpl, SuperSLMGame)
DEFINE_LOG_CATEGORY_STATIC(LogSuperSLM, Log, All);

namespace
{

// The hook: the engine's own workers take the tasks, and ParallelFor returns when all are done.
void RunTasks(void*, int32_t Count, sslm_task_fn Task, void* Context)
{
	ParallelFor(Count, [=](int32 Index) { Task(Context, Index); });
}

template <typename FAction>
bool Guarded(FAction&& Action)
{
	try
	{
		Action();
		return true;
	}
	catch (const std::exception& Error)
	{
		UE_LOG(LogSuperSLM, Error, TEXT("%s"), UTF8_TO_TCHAR(Error.what()));
		return false;
	}
}

} // namespace

USuperSLMSubsystem::USuperSLMSubsystem() = default;
USuperSLMSubsystem::~USuperSLMSubsystem() = default;

bool USuperSLMSubsystem::Open(const FString& Path, const FString& World, int32 Characters, float BudgetMilliseconds)
{
	Cast.reset();
	if (!FFileHelper::LoadFileToArray(Artifact, *Path))
	{
		UE_LOG(LogSuperSLM, Error, TEXT("cannot read %s"), *Path);
		return false;
	}
	return Guarded([&] {
		const std::span Bytes(reinterpret_cast<const std::byte*>(Artifact.GetData()), static_cast<size_t>(Artifact.Num()));
		Cast = std::make_unique<game::Cast>(Bytes, Characters, BudgetMilliseconds, TCHAR_TO_UTF8(*World));
		Cast->use(sslm_parallel_for{RunTasks, nullptr, 4, SSLM_PARALLEL_FOR_MATVEC});
	});
}

bool USuperSLMSubsystem::Say(int32 Who, const FString& Persona, const FString& Line)
{
	if (!Cast || Who < 0 || static_cast<size_t>(Who) >= Cast->characters().size()) return false;
	return Guarded([&] { Cast->say(Who, TCHAR_TO_UTF8(*Persona), TCHAR_TO_UTF8(*Line)); });
}

FString USuperSLMSubsystem::Text(int32 Who) const
{
	if (!Cast || Who < 0 || static_cast<size_t>(Who) >= Cast->characters().size()) return FString();
	return UTF8_TO_TCHAR(Cast->text(Cast->characters()[static_cast<size_t>(Who)].reply).c_str());
}

void USuperSLMSubsystem::Tick(float DeltaTime)
{
	Super::Tick(DeltaTime);
	if (Cast) Guarded([&] { Cast->frame(); });
}

TStatId USuperSLMSubsystem::GetStatId() const
{
	RETURN_QUICK_DECLARE_CYCLE_STAT(USuperSLMSubsystem, STATGROUP_Tickables);
}

void USuperSLMSubsystem::Deinitialize()
{
	Cast.reset();
	Super::Deinitialize();
}
